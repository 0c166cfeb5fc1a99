# captures
see/bindings/pcap := bindings/bytes
libs/bindings/pcap := -lpcap
pc/bindings/pcap := libpcap
