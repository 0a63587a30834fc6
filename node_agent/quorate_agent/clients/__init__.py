"""Clients' connections: where they come in, what they may hold, their share of a turn."""
