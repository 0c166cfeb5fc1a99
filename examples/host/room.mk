# dxpu-host
uses/examples/host = $(uses/examples/common/program) bindings/guard bindings/push bindings/vfio_user bindings/vswitch examples/common/program
libs/examples/host := -ljansson
