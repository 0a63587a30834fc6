"""The times at which keys of a copy expire: the next first, and one time for each key."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from quorate.facts.keyspace import is_reserved

SUPERSEDED_MAX = 1_000
"""So many more times than keys may be kept, and as many again as there are keys."""


class Expiries:
    """Times in wall milliseconds.

    A key that is written again leaves its former time in the heap: to search for it would take too
    long.  Superseded times are dropped when they are due, or when they outnumber the others.

    - `due`: the time of each key
    - `heap`: all times, the next first, superseded ones too
    - `reserved`: the keys that are the protocol's own
    """

    __slots__ = ("due", "heap", "reserved")

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.heap: list[tuple[int, bytes]] = []
        self.reserved: set[bytes] = set()

    def note(self, key: bytes, at_ms: int) -> None:
        """Have the key expire at this time, and no more at another one."""
        due, heap = self.due, self.heap
        if due.get(key) == at_ms:
            return  # as when a value that expires is changed
        due[key] = at_ms
        heappush(heap, (at_ms, key))
        if is_reserved(key):
            self.reserved.add(key)
        if len(heap) > 2 * len(due) + SUPERSEDED_MAX:
            self._drop_superseded()

    def forget(self, key: bytes) -> None:
        """Have the key not expire."""
        if self.due.pop(key, None) is not None:
            self.reserved.discard(key)
            if len(self.heap) > 2 * len(self.due) + SUPERSEDED_MAX:
                self._drop_superseded()

    def forget_clients(self) -> list[tuple[int, bytes]]:
        """Have no key expire that is not reserved; return their times."""
        reserved = [(key, self.due[key]) for key in self.reserved]
        forgotten = [(at_ms, key) for key, at_ms in self.due.items() if not is_reserved(key)]
        self.clear()
        for key, at_ms in reserved:
            self.note(key, at_ms)
        return forgotten

    def is_due(self, now_ms: int) -> bool:
        """Return whether `take` has something to look at."""
        return bool(self.heap) and self.heap[0][0] <= now_ms

    def take(self, now_ms: int, most: int) -> Iterator[tuple[int, bytes]]:
        """Remove and yield what is due, one by one; look at `most` times, superseded ones too."""
        due, heap = self.due, self.heap
        while heap and heap[0][0] <= now_ms and most:
            most -= 1
            at_ms, key = heappop(heap)
            if due.get(key) == at_ms:
                del due[key]
                self.reserved.discard(key)
                yield at_ms, key

    def clear(self) -> None:
        """Forget all keys."""
        self.due.clear()
        self.heap.clear()
        self.reserved.clear()

    def _drop_superseded(self) -> None:
        self.heap[:] = [(at_ms, key) for key, at_ms in self.due.items()]
        heapify(self.heap)
