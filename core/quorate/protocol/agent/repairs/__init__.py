"""Repairs that a person asks for: a copy that is filled anew, a key whose row was chosen."""
