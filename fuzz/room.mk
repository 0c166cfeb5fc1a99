# fuzz targets
uses/fuzz = $(filter-out tests/% fuzz examples/demo,$(ROOMS))
