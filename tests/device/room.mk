# tests of dxpu-device
uses/tests/device = $(uses/examples/device) examples/device
libs/tests/device := -lcmocka
