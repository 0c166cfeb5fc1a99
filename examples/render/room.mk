# dxpu-render
uses/examples/render = $(uses/examples/common/program) examples/common/program
see/examples/render := examples/devices
libs/examples/render := $(if $(VIRGL),-lvirglrenderer)
