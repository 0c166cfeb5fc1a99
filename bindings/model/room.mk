# what a TLP costs on its way: a pure header
pure/bindings/model := DXPU_MODEL
