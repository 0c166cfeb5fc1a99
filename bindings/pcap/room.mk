# captures
libs/bindings/pcap := -lpcap
