"""Which commands there are, and what clients are told of them."""
