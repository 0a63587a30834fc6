"""Copies of a zone: asks them, validates them, damages them on purpose."""
