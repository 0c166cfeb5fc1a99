# fuzz targets
uses/fuzz = $(filter-out tests/% fuzz examples/demo examples/inject,$(ROOMS))
# Seen, not linked: it replaces dlsym(), which the sanitizers call.
see/fuzz := examples/inject
