# tests of dxpu-manager
uses/tests/manager = $(uses/examples/manager) examples/manager
libs/tests/manager := -lcmocka
