# AF_XDP sockets
libs/bindings/af_xdp := $(if $(XDP),-lxdp -lbpf)
