# device models
uses/examples/devices := examples/common/base bindings/push
