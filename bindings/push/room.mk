# push rules: what a device reads next travels with its doorbell; no library
