# tests of what the programs share
uses/tests/common = $(uses/examples/common/program) bindings/guard examples/common/program
libs/tests/common := -lcmocka
