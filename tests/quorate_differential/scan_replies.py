"""The reply to SCAN, taken apart."""

import hiredis


def read_scan(reply: bytes) -> tuple[bytes, list[bytes]]:
    """The cursor and the keys; AssertionError with what was said instead."""
    reader = hiredis.Reader()
    reader.feed(reply)
    said = reader.gets()
    assert isinstance(said, list), said
    cursor, keys = said
    return cursor, keys
