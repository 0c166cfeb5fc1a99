# benchmarks
uses/tests/bench = $(filter-out tests/% fuzz examples/demo examples/inject,$(ROOMS))
libs/tests/bench := -lcmocka
