"""Spark's passes over all rows of all copies."""
