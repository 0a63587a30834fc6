"""Parsing what clients send: commands in a byte stream, numbers, patterns."""
