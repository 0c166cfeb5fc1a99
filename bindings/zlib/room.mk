# CRC-32 by zlib or libdeflate: functions of a header
libs/bindings/zlib := -lz $(if $(DEFLATE),-ldeflate)
pc/bindings/zlib := $(if $(DEFLATE),libdeflate,zlib)
