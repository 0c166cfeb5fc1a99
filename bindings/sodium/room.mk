# the primitives and keys of libsodium
uses/bindings/sodium := bindings/secure
libs/bindings/sodium := -lsodium
pc/bindings/sodium := libsodium
