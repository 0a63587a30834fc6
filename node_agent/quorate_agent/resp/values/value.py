"""The encoding of values: a string, or a hash, set or list in one piece.

Core, storage and digests know bytes only.  A string is stored as it is, a collection as MARKER, the
letter of its kind and its MessagePack; a string that begins with MARKER gets one more in front.
MARKER is the highest byte, so `value < MARKER` is enough to recognize a plain string, and no UTF-8
text begins with it.  The same operations give the same bytes: fields and members stay in insertion
order.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

MARKER: Final = b"\xff"


class Kind(enum.Enum):
    """The kind of a value, by the name that TYPE answers."""

    STRING = b"string"
    HASH = b"hash"
    SET = b"set"
    LIST = b"list"


class Damaged(Exception):
    """Bytes that no command wrote."""


_HEADS: Final = {Kind.HASH: b"\xffh", Kind.SET: b"\xffs", Kind.LIST: b"\xffl"}
_KINDS: Final = {MARKER + MARKER: Kind.STRING, **{head: kind for kind, head in _HEADS.items()}}
_HEAD_BYTES: Final = 2
_COUNT_BYTES: Final = {b"\xdc": 2, b"\xdd": 4, b"\xde": 2, b"\xdf": 4}
"""MessagePack: how many bytes have the count of a long array or map, by its first byte."""

_encode = msgspec.msgpack.Encoder().encode
_decode_fields = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_decode_items = msgspec.msgpack.Decoder(list[bytes]).decode


def kind_of(value: bytes) -> Kind:
    """Return the kind of `value`; Damaged if it is none of ours."""
    if value < MARKER:
        return Kind.STRING
    try:
        return _KINDS[value[:_HEAD_BYTES]]
    except KeyError:
        raise Damaged(f"no kind of value begins with {value[:_HEAD_BYTES]!r}") from None


def count_of(value: bytes) -> int:
    """Return how many fields, members or elements a collection's value says that it has."""
    first = value[_HEAD_BYTES : _HEAD_BYTES + 1]
    width = _COUNT_BYTES.get(first)
    if width is None:
        return first[0] & 0x0F if first else 0
    return int.from_bytes(value[_HEAD_BYTES + 1 : _HEAD_BYTES + 1 + width])


def pack_string(text: bytes) -> bytes:
    """Return the value that means `text`."""
    return text if text < MARKER else MARKER + text


def string_of(value: bytes) -> bytes | None:
    """Return the string that `value` means; None if it is something else."""
    if value < MARKER:
        return value
    return value[1:] if value[1:_HEAD_BYTES] == MARKER else None


def pack_fields(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the value that means a hash."""
    return _HEADS[Kind.HASH] + _encode(fields)


def pack_members(members: Iterable[bytes]) -> bytes:
    """Return the value that means a set."""
    return _HEADS[Kind.SET] + _encode(list(members))


def pack_elements(elements: list[bytes]) -> bytes:
    """Return the value that means a list."""
    return _HEADS[Kind.LIST] + _encode(elements)


def unpack_fields(value: bytes) -> dict[bytes, bytes]:
    """Return the fields of a hash; Damaged."""
    try:
        return _decode_fields(memoryview(value)[_HEAD_BYTES:])
    except msgspec.MsgspecError as problem:
        raise Damaged(str(problem)) from None


def unpack_members(value: bytes) -> dict[bytes, None]:
    """Return the members of a set, in a dict to keep their order; Damaged."""
    return dict.fromkeys(unpack_elements(value))


def unpack_elements(value: bytes) -> list[bytes]:
    """Return the elements of a list; Damaged."""
    try:
        return _decode_items(memoryview(value)[_HEAD_BYTES:])
    except msgspec.MsgspecError as problem:
        raise Damaged(str(problem)) from None
