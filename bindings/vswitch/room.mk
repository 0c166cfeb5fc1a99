# the virtual switch: a pure header
pure/bindings/vswitch := DXPU_VSWITCH
