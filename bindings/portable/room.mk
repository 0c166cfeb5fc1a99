# primitives of bindings/secure without a library
uses/bindings/portable := bindings/secure
