"""Reads the copies of a zone until the answers can be judged."""
