# tests of dxpu
uses/tests/cli = $(uses/examples/cli) examples/cli
libs/tests/cli := -lcmocka
