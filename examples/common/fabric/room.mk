# channels over sockets: dialling, sealing, recording, workers, keys
uses/examples/common/fabric := bindings/acceptor bindings/af_xdp bindings/foreign bindings/libevent bindings/pcap bindings/secure bindings/sodium \
  bindings/zlib examples/common/base examples/common/guard
