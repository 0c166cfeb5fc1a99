# the control protocol: a pure header
pure/bindings/control := DXPU_CONTROL
