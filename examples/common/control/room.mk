# the control port, sealed streams, the connection to a manager
uses/examples/common/control = $(uses/examples/common/fabric) bindings/control examples/common/fabric
