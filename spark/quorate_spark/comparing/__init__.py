"""Judges whether copies agree: pure functions of what was read."""
