# CRC-32 by zlib or libdeflate: compiled into libdxpu.a
libs/bindings/zlib := -lz $(if $(DEFLATE),-ldeflate)
