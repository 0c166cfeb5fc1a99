# the control protocol: a pure header
