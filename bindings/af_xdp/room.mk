# AF_XDP sockets
libs/bindings/af_xdp := $(if $(XDP),-lxdp -lbpf)
pc/bindings/af_xdp := $(if $(XDP),libxdp libbpf)
private/bindings/af_xdp := dxpu_af_xdp_neighbour.h
