# dxpu
uses/examples/cli = $(uses/examples/common/program) bindings/model
libs/examples/cli := -ljansson
