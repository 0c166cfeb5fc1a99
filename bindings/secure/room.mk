# handshake and sealing over a table of primitives: no library
