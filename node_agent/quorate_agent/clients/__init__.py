"""Clients' connections: listeners, what they may hold in memory, their share of a turn."""
