# captures
libs/bindings/pcap := -lpcap
pc/bindings/pcap := libpcap
