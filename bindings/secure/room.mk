# handshake and sealing over a table of primitives: no library
private/bindings/secure := dxpu_seal.h
