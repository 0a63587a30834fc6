"""Passes over all rows of all copies."""
