"""The commands that ask how a value is stored: OBJECT and MEMORY USAGE.

Tools ask for encodings, so the answer is the one that Redis would choose for the same contents;
here every value is stored in one piece.
"""

from collections.abc import Mapping

from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.replies import (
    DAMAGED,
    NOT_AN_INTEGER,
    ONE,
    SYNTAX_ERROR,
    bulk,
    error,
    integer,
    null,
)
from quorate_agent.resp.values.collection import hash_at, set_at
from quorate_agent.resp.values.value import Damaged, Kind, kind_of, string_of
from quorate_agent.resp.view import KeyView

# Default limits of Redis' compact encodings.
_EMBEDDED_BYTES_MAX = 44
_LISTPACK_ENTRIES_MAX = 512
_LISTPACK_BYTES_MAX = 64
_INTSET_ENTRIES_MAX = 512

# Overhead of a row in CPython, in bytes, besides its key and value.
_ROW_BYTES = 300

_NO_FREQUENCY = error(
    b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that"
    b" when switching between policies at runtime LRU and LFU data will take some time to adjust."
)
# Our own: reading a key changes nothing here, so the time is unknown.
_NO_IDLE_TIME = error(b"ERR idle time not tracked: reading a key leaves no trace in Quorate")


def encoding(view: KeyView, args: list[bytes]) -> bytes:
    """OBJECT ENCODING key"""
    key = args[2]
    row = view.get(key)
    if row is None or row.value is None:
        return null(view.resp3)
    try:
        kind = kind_of(row.value)
    except Damaged:
        return DAMAGED
    if kind is Kind.STRING:
        return bulk(_string_encoding(string_of(row.value) or b""))
    if kind is Kind.HASH:
        fields = hash_at(view, key)
        return fields if isinstance(fields, bytes) else bulk(_hash_encoding(fields.items))
    if kind is Kind.SET:
        members = set_at(view, key)
        return members if isinstance(members, bytes) else bulk(_set_encoding(members.items))
    return bulk(b"quicklist")


def frequency(view: KeyView, args: list[bytes]) -> bytes:
    """OBJECT FREQ key: an error, as in a Redis that evicts nothing"""
    return null(view.resp3) if view.get(args[2]) is None else _NO_FREQUENCY


def idle_time(view: KeyView, args: list[bytes]) -> bytes:
    """OBJECT IDLETIME key: an error of our own"""
    return null(view.resp3) if view.get(args[2]) is None else _NO_IDLE_TIME


def reference_count(view: KeyView, args: list[bytes]) -> bytes:
    """OBJECT REFCOUNT key: 1, values are not shared"""
    return null(view.resp3) if view.get(args[2]) is None else ONE


def memory_usage(view: KeyView, args: list[bytes]) -> bytes:
    """MEMORY USAGE key [SAMPLES number]: about the bytes that one copy of the row takes"""
    for at in range(3, len(args), 2):
        if args[at].upper() != b"SAMPLES" or at + 1 == len(args):
            return SYNTAX_ERROR
        samples = parse_integer(args[at + 1])
        if samples is None:
            return NOT_AN_INTEGER
        if samples < 0:
            return SYNTAX_ERROR
    row = view.get(args[2])
    if row is None or row.value is None:
        return null(view.resp3)
    return integer(_ROW_BYTES + len(args[2]) + len(row.value))


def _string_encoding(text: bytes) -> bytes:
    if parse_integer(text) is not None:
        return b"int"
    return b"embstr" if len(text) <= _EMBEDDED_BYTES_MAX else b"raw"


def _hash_encoding(fields: Mapping[bytes, bytes]) -> bytes:
    if len(fields) > _LISTPACK_ENTRIES_MAX:
        return b"hashtable"
    longest = max((max(len(field), len(fields[field])) for field in fields), default=0)
    return b"listpack" if longest <= _LISTPACK_BYTES_MAX else b"hashtable"


def _set_encoding(members: Mapping[bytes, None]) -> bytes:
    if len(members) > _INTSET_ENTRIES_MAX:
        return b"hashtable"
    integers = all(parse_integer(member) is not None for member in members)
    return b"intset" if integers else b"hashtable"
