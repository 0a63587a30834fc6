"""A cache of unpacked collections that were used a moment ago.

A hash of 1,000 fields takes some 90 µs to unpack and nothing to look up.  An entry is only used for
exactly the bytes it was made from, so it cannot be stale, whatever changed the row.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

Items = TypeVar("Items")

# Shorter values are unpacked about as quickly as they are looked up.
WORTH_BYTES: Final = 256
# Bytes of all values whose contents are kept; unpacked they take about six times as much.
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024


class Unpacked:
    """Contents by key and value; the least recently used are evicted first."""

    __slots__ = ("_bytes", "_entries")

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[bytes, Any]] = OrderedDict()
        self._bytes = 0

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

    def keep(self, key: bytes, value: bytes, items: object) -> None:
        """Remember what `value` unpacks to."""
        entries = self._entries
        old = entries.pop(key, None)
        if old is not None:
            self._bytes -= len(old[0])
        if not WORTH_BYTES <= len(value) <= KEPT_BYTES_MAX:
            return
        entries[key] = (value, items)
        self._bytes += len(value)
        while self._bytes > KEPT_BYTES_MAX:
            _, (oldest, _) = entries.popitem(last=False)
            self._bytes -= len(oldest)
