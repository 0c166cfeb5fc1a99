# push rules: what a device reads next travels with its doorbell; no library
see/bindings/push := bindings/bytes
