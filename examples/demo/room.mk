# programs of the demo: a relay, a ping-pong, a model without a fabric
uses/examples/demo = $(uses/examples/host) examples/devices examples/host
