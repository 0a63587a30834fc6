"""Rows on their way to a zone, through the primaries of its partitions."""
