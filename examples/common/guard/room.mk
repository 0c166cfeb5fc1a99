# DMA windows, refusals, sandbox, audit
uses/examples/common/guard := bindings/guard examples/common/base
libs/examples/common/guard := $(if $(SECCOMP),-lseccomp) -ljansson -lsodium
