# libdxpu-inject.so
uses/examples/inject := bindings/model
