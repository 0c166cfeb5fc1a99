# dxpu-device
uses/examples/device = $(uses/examples/common/program) bindings/vfio_user examples/common/program examples/devices
