"""The rows that a keyed command reads and changes: the live rows of one partition, at one moment.

A row is live if it is not a tombstone and has not expired: expires_at 0, or >= now (as in Redis,
where a key is expired once now > at).  Handlers touch each key at most once with `put` or `delete`,
never read a key after writing it, and call neither when the command changes nothing.  So an
implementation may gather the writes and turn them into one update after the handler has returned.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from quorate.protocol.copies.copy import Copy
from quorate.protocol.storage import Operation, Row


class KeyView(Protocol):
    """The rows a keyed command works on."""

    now_ms: int  # wall milliseconds; one moment for the whole command
    resp3: bool

    @property
    def get(self) -> Callable[[bytes], Row | None]:
        """Returns the live row of a key.  May be bound directly to the engine's `get`."""

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Write a row; `expires_at_ms` in absolute wall milliseconds, 0: never."""

    def delete(self, key: bytes) -> None:
        """Remove a key that `get` showed as live."""

    def position(self) -> int:
        """Return a counter that lasts: any later change of a key has a higher one."""

    def written_since(self, positions: Mapping[bytes, int]) -> bool:
        """Return whether one of these keys was written or removed after the position it has here.

        True also in doubt."""


def is_live(row: Row, now_ms: int) -> bool:
    """Return whether the row is live by the rule above.

    `View.get`, which every command uses, and `live_values` have it inlined."""
    return row.value is not None and not 0 < row.expires_at < now_ms


def live_values(rows: Iterable[Row | None], now_ms: int) -> list[bytes | None]:
    """Return the values of the live rows; None for all others."""
    return [None if row is None or 0 < row.expires_at < now_ms else row.value for row in rows]


class View:
    """The agent's KeyView: a window on one copy, whose writes are gathered."""

    __slots__ = ("copy", "is_pending", "now_ms", "operations", "resp3", "waits")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.waits = False
        self.resp3 = False
        self.now_ms = 0
        self.is_pending: Callable[[bytes], bool] | None = None  # None: no key is pending
        self.copy: Copy  # the copy whose rows these are

    def get(self, key: bytes) -> Row | None:
        """Return the live row of `key`; set `waits` if its last write is not acknowledged yet."""
        if self.is_pending is not None and self.is_pending(key):
            self.waits = True
        row = self.copy.get(key)
        if row is None or row.value is None or (row.expires_at and row.expires_at < self.now_ms):
            return None
        return row

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Gather a write of `key`."""
        self.operations.append((key, value, expires_at_ms))

    def delete(self, key: bytes) -> None:
        """Gather a removal of `key`."""
        self.operations.append((key, None, 0))

    def position(self) -> int:
        """Return the last counter known to last when this is answered.

        Higher ones may be undone, and reused for other updates.  With PRIMARY_SYNC it lasts as long
        as the primary: what is written of a key and removed after an unplanned change may be
        missed."""
        if self.waits:  # the reply waits for everything written so far
            return self.copy.lwm
        return max(self.copy.answered, min(self.copy.majority, self.copy.hwm))

    def written_since(self, positions: Mapping[bytes, int]) -> bool:
        """Return whether one of these keys, now absent, was touched after its position."""
        return self.copy.written_since(positions)
