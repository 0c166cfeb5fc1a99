# what a TLP costs on its way: a pure header
