# simulations of pairs of channels
uses/tests/sim := bindings/pcap bindings/push bindings/zlib
libs/tests/sim := -lcmocka
with/tests/sim := library.o
