# start and end of a program
uses/examples/common/program = $(uses/examples/common/control) examples/common/control
