"""Decisions of the master for one zone: its rows, one migration step after the other."""
