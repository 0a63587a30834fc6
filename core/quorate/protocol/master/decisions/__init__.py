"""What a person decides about partitions of a zone that do not help themselves."""
