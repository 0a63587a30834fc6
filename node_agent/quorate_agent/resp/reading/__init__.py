"""Bytes and words that clients send: commands cut out of a stream, numbers, patterns."""
