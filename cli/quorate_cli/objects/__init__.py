"""Declared objects and the state of a cluster: reads, judges and shows them."""
