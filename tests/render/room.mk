# tests of dxpu-render
uses/tests/render := examples/common/base
see/tests/render := examples/devices
libs/tests/render := -lcmocka
