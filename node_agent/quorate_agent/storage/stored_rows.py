"""The stored form of a row: its head, and behind it the value or a reference to one."""

from collections.abc import Iterable
from typing import Final

from quorate.protocol.storage import GONE, LIVE, ROW_HEAD, TOMBSTONE, Row, ScannedKeys

HEAD_BYTES: Final = ROW_HEAD.size
KIND_AT: Final = HEAD_BYTES - 1
"""Offset of the kind: LIVE, TOMBSTONE, IN_PIECES or IN_FILE."""

IN_PIECES: Final = 2
"""A reference to a value that an earlier version wrote follows the head."""
IN_FILE: Final = 4
"""A reference to a long value follows the head."""
PLAIN_KINDS: Final = bytes((LIVE, TOMBSTONE))
"""The kinds of rows whose value, if there is one, follows the head."""
KINDS_TOLD: Final = bytes(kind & TOMBSTONE for kind in range(256))
"""For each stored kind, LIVE or TOMBSTONE."""


def pack_row(row: Row) -> bytes:
    """Return the row with its value."""
    value = row.value
    if value is None:
        return ROW_HEAD.pack(row.counter, row.term, row.expires_at, TOMBSTONE)
    return ROW_HEAD.pack(row.counter, row.term, row.expires_at, LIVE) + value


def pack_reference(row: Row, reference: bytes) -> bytes:
    """Return the row with a reference to its value in a file."""
    return ROW_HEAD.pack(row.counter, row.term, row.expires_at, IN_FILE) + reference


def keys_of(
    rows: Iterable[tuple[bytes, Row | bytes]], rows_max: int, bytes_max: int
) -> ScannedKeys:
    """Return the keys of the first rows, until one of the bounds is reached.

    `rows`: as they are stored, or unpacked if nothing had to be read for them."""
    keys: list[bytes] = []
    expiries: list[int] = []
    counters: list[int] = []
    size = 0
    for key, row in rows:
        if isinstance(row, bytes):
            counter, _, expires_at, kind = ROW_HEAD.unpack_from(row)
            is_tombstone = bool(kind & TOMBSTONE)
            size += len(key) + len(row)
        else:
            counter, expires_at, is_tombstone = row.counter, row.expires_at, row.value is None
            size += len(key) + HEAD_BYTES
        keys.append(key)
        expiries.append(GONE if is_tombstone else expires_at)
        counters.append(counter)
        if len(keys) >= rows_max or size >= bytes_max:
            return ScannedKeys(keys, expiries, counters, size, False)
    return ScannedKeys(keys, expiries, counters, size, True)


def after_prefix(prefix: bytes) -> bytes:
    """Return the first key behind all keys that start with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,))
