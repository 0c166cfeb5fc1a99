# DMA windows and the guard of a lease: no library
see/bindings/guard := bindings/bytes
