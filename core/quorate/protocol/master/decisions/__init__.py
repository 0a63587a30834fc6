"""Decisions of a person about partitions of a zone that do not help themselves."""
