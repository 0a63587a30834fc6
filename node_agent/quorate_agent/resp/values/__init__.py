"""The encoding of a row's value: a string, or a hash, set or list."""
