# headers of IP and UDP, and messages, for other bindings: functions of headers, not installed
private/bindings/bytes := dxpu_bytes.h dxpu_bytes_message.h
