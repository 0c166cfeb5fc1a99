# dxpu-box
uses/examples/box = $(uses/examples/common/program) bindings/guard bindings/push bindings/vfio_user examples/common/program examples/devices
see/examples/box := bindings/bytes
libs/examples/box := -lpng
