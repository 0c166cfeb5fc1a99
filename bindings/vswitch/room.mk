# the virtual switch: a pure header
