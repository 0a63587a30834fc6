"""A cache of unpacked collections that were used a moment ago, and how large one may be.

A hash of 1,000 fields takes some 90 µs to unpack and nothing to look up.  An entry is only used for
exactly the bytes it was made from, so it cannot be stale, whatever changed the row.

Unpacked, a collection of many short members takes far more memory than its value: each field,
member or element is an object.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

Items = TypeVar("Items")

WORTH_BYTES: Final = 256
"""Shorter values are unpacked about as quickly as they are looked up."""

MEMBER_BYTES: Final = 160
"""Of each field or member beside its own bytes: one or two objects, and a place in a dict."""

ELEMENT_BYTES: Final = 48
"""Of each element of a list beside its own bytes."""

KEPT_BYTES_MAX: Final = 96 * 1024 * 1024
"""Of everything that is kept: keys, values, and what these unpack to, by the estimates above."""

MEMORY_SHARE: Final = 1 / 4
"""Share of the memory limit that the objects of one collection may take.

A command that changes one has it twice for a moment, with both values."""


class Unpacked:
    """Contents by key and value; the least recently used are evicted first.

    `room_bytes`: what `object_bytes` of one collection may be."""

    __slots__ = ("_bytes", "_entries", "room_bytes")

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[bytes, Any, int]] = OrderedDict()
        self._bytes = 0
        self.room_bytes = 1 << 62

    def items(self, key: bytes, value: bytes, unpack: Callable[[bytes], Items]) -> Items:
        """Return what `value`, the present value of `key`, unpacks to; it must not be changed."""
        if len(value) < WORTH_BYTES:
            return unpack(value)
        entry = self._entries.get(key)
        if entry is not None and entry[0] == value:
            self._entries.move_to_end(key)
            items: Items = entry[1]
            return items
        items = unpack(value)
        self.keep(key, value, items)
        return items

    def keep(self, key: bytes, value: bytes, items: Any) -> None:
        """Remember what `value` unpacks to."""
        entries = self._entries
        old = entries.pop(key, None)
        if old is not None:
            self._bytes -= old[2]
        size = len(key) + 2 * len(value) + object_bytes(len(items), isinstance(items, list))
        if len(value) < WORTH_BYTES or size > KEPT_BYTES_MAX:
            return
        entries[key] = (value, items, size)
        self._bytes += size
        while self._bytes > KEPT_BYTES_MAX:
            _, (_, _, of_oldest) = entries.popitem(last=False)
            self._bytes -= of_oldest


def object_bytes(count: int, is_list: bool) -> int:
    """Return about what the objects of so many elements, or else fields or members, take."""
    return count * (ELEMENT_BYTES if is_list else MEMBER_BYTES)
