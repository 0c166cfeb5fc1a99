# simulations of pairs of channels
uses/tests/sim := bindings/pcap
libs/tests/sim := -lcmocka
with/tests/sim := library.o
