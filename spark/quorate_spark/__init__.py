"""Spark over a zone: every copy as a data source, and whether all copies agree."""
