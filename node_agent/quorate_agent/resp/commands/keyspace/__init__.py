"""The commands about keys of any type: their existence, expiry, storage; SCAN."""
