# AF_XDP sockets
see/bindings/af_xdp := bindings/bytes
libs/bindings/af_xdp := $(if $(XDP),-lxdp -lbpf)
pc/bindings/af_xdp := $(if $(XDP),libxdp libbpf)
private/bindings/af_xdp := dxpu_af_xdp_neighbour.h
