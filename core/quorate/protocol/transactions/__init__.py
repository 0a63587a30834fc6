"""Transactions over several partitions: locks, parts, the decision."""
