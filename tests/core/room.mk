# tests of dxpu.h
libs/tests/core := -lcmocka
