"""Keys of a dict in order, kept while a scan goes on from chunk to chunk."""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final

_ADDED_MAX: Final = 1024
_INSERTED_MAX: Final = 64
"""Up to this number, keys are inserted one by one; of more, the list is sorted again."""


class KeyOrder:
    """Keys with first <= key < before, in order; `before` None: to the end of the keys.

    Keys that were dropped since then are in it, too.
    """

    __slots__ = ("_added", "_before", "_first", "_keys")

    def __init__(self, keys: Iterable[bytes], first: bytes, before: bytes | None) -> None:
        self._first = first
        self._before = before
        self._keys = sorted(self._within(keys))
        self._added: list[bytes] = []

    def covers(self, first: bytes, before: bytes | None, rows: int) -> bool:
        """Return whether it has these keys, and not far more than the `rows` that there are."""
        return (
            self._first <= first
            and (self._before is None or (before is not None and before <= self._before))
            and len(self._keys) <= 2 * rows + 64
        )

    def ends_at(self, before: bytes | None) -> bool:
        """Return whether a scan up to `before` has reached its end."""
        return self._before == before

    def add(self, keys: Collection[bytes]) -> bool:
        """Take in keys that are new; False: there were so many since the last scan that it is to be
        forgotten, because that scan may never go on."""
        self._added.extend(keys)
        return len(self._added) <= _ADDED_MAX + len(self._keys) // 4

    def keys(self) -> list[bytes]:
        """Return the keys as they are now."""
        keys = self._keys
        if self._added:
            new = [key for key in set(self._within(self._added)) if not self._has(key)]
            self._added = []
            if len(new) <= _INSERTED_MAX:
                for key in new:
                    keys.insert(bisect_left(keys, key), key)
            else:
                keys += new
                keys.sort()
        return keys

    def _within(self, keys: Iterable[bytes]) -> Iterable[bytes]:
        first, before = self._first, self._before
        if before is None:
            return [key for key in keys if first <= key] if first else keys
        return [key for key in keys if first <= key < before]

    def _has(self, key: bytes) -> bool:
        at = bisect_left(self._keys, key)
        return at < len(self._keys) and self._keys[at] == key
