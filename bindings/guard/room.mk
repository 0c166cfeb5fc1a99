# DMA windows and the guard of a lease: no library
