"""The target: where the copies and primaries of each partition should be."""
