# tests of dxpu-host
uses/tests/host = $(uses/examples/host) examples/host
libs/tests/host := -lcmocka
