# headers of IP and UDP for other bindings: functions of a header, not installed
private/bindings/bytes := dxpu_bytes.h
