# TLPs on other projects' wires: NetTLP, PCILeech's RawUDP; no library
