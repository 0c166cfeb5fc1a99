# a box without an operating system
uses/bindings/firmware := bindings/guard bindings/secure
see/bindings/firmware := bindings/acceptor bindings/bytes
