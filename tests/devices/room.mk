# tests of the device models
uses/tests/devices := examples/common/base bindings/push examples/devices
libs/tests/devices := -lcmocka
