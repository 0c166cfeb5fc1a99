# tests of dxpu-box
uses/tests/box = $(uses/examples/box) examples/box
libs/tests/box := -lcmocka
