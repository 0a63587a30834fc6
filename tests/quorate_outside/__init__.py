"""A client in a network of its own, which reaches only the addresses of nodes."""
