# tests of the bindings
uses/tests/bindings = $(filter bindings/%,$(ROOMS))
libs/tests/bindings := -lcmocka
