# tests of the device models
uses/tests/devices := examples/common/base examples/devices
libs/tests/devices := -lcmocka
