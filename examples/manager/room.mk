# dxpu-manager
uses/examples/manager = $(uses/examples/common/program) examples/common/program
libs/examples/manager := -ljansson -lsqlite3
