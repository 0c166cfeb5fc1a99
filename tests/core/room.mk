# tests of dxpu.h
uses/tests/core := bindings/zlib
libs/tests/core := -lcmocka
