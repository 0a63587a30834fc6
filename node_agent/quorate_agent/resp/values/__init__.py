"""What a row's bytes mean: a string, or a hash, set or list."""
