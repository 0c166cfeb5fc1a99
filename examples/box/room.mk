# dxpu-box
uses/examples/box = $(uses/examples/common/program) bindings/guard examples/common/program examples/devices
libs/examples/box := -lpng
