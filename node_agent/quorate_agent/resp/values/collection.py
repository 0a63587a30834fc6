"""Reads a key's hash, set or list, and puts a changed one back into its row.

Contents that were read are shared and must not be changed: a command changes a copy of them.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Generic, NamedTuple, TypeVar

from quorate_agent.resp.replies import (
    COLLECTION_TOO_LONG,
    DAMAGED,
    VALUE_BYTES_MAX,
    WRONGTYPE,
    error,
)
from quorate_agent.resp.values.unpacked import (
    MEMBER_BYTES,
    MEMORY_SHARE,
    Unpacked,
    object_bytes,
)
from quorate_agent.resp.values.value import (
    Damaged,
    Kind,
    count_of,
    kind_of,
    pack_elements,
    pack_fields,
    pack_members,
    unpack_elements,
    unpack_fields,
    unpack_members,
)
from quorate_agent.resp.view import KeyView

Items = TypeVar("Items", bound=Sized)

_unpacked = Unpacked()


class Collection(NamedTuple, Generic[Items]):
    """The value of a key; empty if the key does not exist."""

    items: Items
    exists: bool
    expires_at: int  # absolute wall milliseconds; 0 never


def hash_at(view: KeyView, key: bytes) -> Collection[Mapping[bytes, bytes]] | bytes:
    """Return the hash that `key` holds, or the error reply."""
    return _at(view, key, Kind.HASH, unpack_fields, dict[bytes, bytes])


def set_at(view: KeyView, key: bytes) -> Collection[Mapping[bytes, None]] | bytes:
    """Return the set that `key` holds, or the error reply."""
    return _at(view, key, Kind.SET, unpack_members, dict[bytes, None])


def list_at(view: KeyView, key: bytes) -> Collection[Sequence[bytes]] | bytes:
    """Return the list that `key` holds, or the error reply."""
    return _at(view, key, Kind.LIST, unpack_elements, list[bytes])


def put_hash(
    view: KeyView, key: bytes, old: Collection[Any], fields: dict[bytes, bytes], reply: bytes
) -> bytes:
    """Store `fields` under `key` in place of `old`; return `reply`, or an error with nothing
    changed."""
    return _put(view, key, old, fields, pack_fields, reply)


def put_set(
    view: KeyView, key: bytes, old: Collection[Any], members: dict[bytes, None], reply: bytes
) -> bytes:
    """Store `members` under `key` in place of `old`; return `reply`, or an error with nothing
    changed."""
    return _put(view, key, old, members, pack_members, reply)


def put_list(
    view: KeyView, key: bytes, old: Collection[Any], elements: list[bytes], reply: bytes
) -> bytes:
    """Store `elements` under `key` in place of `old`; return `reply`, or an error with nothing
    changed."""
    return _put(view, key, old, elements, pack_elements, reply)


def bound_collections(memory_bytes: int) -> None:
    """Refuse collections that take too large a share of the memory limit unpacked."""
    _unpacked.room_bytes = int(memory_bytes * MEMORY_SHARE)


def _too_many(count: int, is_list: bool) -> bytes:
    """Return why a collection of so many entries is refused; empty if it is not."""
    if object_bytes(count, is_list) <= _unpacked.room_bytes:
        return b""
    return error(
        b"ERR a hash, set or list of %d entries is too large for this agent's memory limit: at most"
        b" %d, or three times as many in a list. Use several keys, or give the agents more memory"
        % (count, _unpacked.room_bytes // MEMBER_BYTES)
    )


def _at(
    view: KeyView,
    key: bytes,
    kind: Kind,
    unpack: Callable[[bytes], Items],
    empty: Callable[[], Items],
) -> Collection[Items] | bytes:
    row = view.get(key)
    if row is None or row.value is None:
        return Collection(empty(), False, 0)
    try:
        if kind_of(row.value) is not kind:
            return WRONGTYPE
        if len(row.value) * MEMBER_BYTES > _unpacked.room_bytes:  # else it has too few, surely
            refused = _too_many(count_of(row.value), kind is Kind.LIST)
            if refused:
                return refused
        items = _unpacked.items(key, row.value, unpack)
    except Damaged:
        return DAMAGED
    if not items:  # no command stores one
        return Collection(empty(), False, 0)
    return Collection(items, True, row.expires_at)


def _put(
    view: KeyView,
    key: bytes,
    old: Collection[Any],
    items: Items,
    pack: Callable[[Items], bytes],
    reply: bytes,
) -> bytes:
    if not items:
        if old.exists:
            view.delete(key)
        return reply
    refused = _too_many(len(items), isinstance(items, list))
    if refused:
        return refused
    value = pack(items)
    if len(value) > VALUE_BYTES_MAX:
        return COLLECTION_TOO_LONG
    _unpacked.keep(key, value, items)
    view.put(key, value, old.expires_at)
    return reply
