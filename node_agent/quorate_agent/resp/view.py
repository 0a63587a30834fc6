"""What a keyed command may see and do: the live rows of one partition, at one moment.

A row is live while it is no tombstone and has not expired: expires_at 0, or >= now (Redis: expired
once now > at).  Handlers touch each key at most once with `put` or `delete`, never read a key after
having written it, and call neither when the command changes nothing.  So an implementation may
gather the writes and turn them into one update after the handler has returned.
"""

from collections.abc import Callable
from typing import Protocol

from quorate.protocol.messages import Operation
from quorate.protocol.storage import Row


class KeyView(Protocol):
    """The rows a keyed command works on."""

    now_ms: int  # wall milliseconds; one moment for the whole command
    resp3: bool

    # An attribute, not a method: an implementation may bind it straight to its engine's `get`.
    get: Callable[[bytes], Row | None]  # live row only

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Write; `expires_at_ms` absolute wall milliseconds, 0 never."""

    def delete(self, key: bytes) -> None:
        """Remove a key that `get` showed as live."""


class DictView:
    """A KeyView over a dict, for tests and for measuring handlers by themselves."""

    def __init__(self, now_ms: int = 0, resp3: bool = False) -> None:
        self.rows: dict[bytes, Row] = {}
        self.now_ms = now_ms
        self.resp3 = resp3
        self.changes = 0
        self.get: Callable[[bytes], Row | None] = self._get

    def _get(self, key: bytes) -> Row | None:
        row = self.rows.get(key)
        if row is not None and 0 < row.expires_at < self.now_ms:
            return None
        return row

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        self.changes += 1
        self.rows[key] = Row(self.changes, 1, expires_at_ms, value)

    def delete(self, key: bytes) -> None:
        self.changes += 1
        del self.rows[key]


def _nothing(key: bytes) -> Row | None:
    return None


def never_pending(key: bytes) -> bool:
    return False


class View:
    """The agent's KeyView: a window on one copy, whose writes are gathered."""

    __slots__ = ("get_row", "is_pending", "now_ms", "operations", "resp3", "waits")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.waits = False
        self.resp3 = False
        self.now_ms = 0
        self.is_pending: Callable[[bytes], bool] = never_pending
        self.get_row: Callable[[bytes], Row | None] = _nothing

    def get(self, key: bytes) -> Row | None:
        """The live row of `key`; notes when its last write is not acknowledged yet."""
        if self.is_pending(key):
            self.waits = True
        row = self.get_row(key)
        if row is None or row.value is None or (row.expires_at and row.expires_at < self.now_ms):
            return None
        return row

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Set `key`."""
        self.operations.append((key, value, expires_at_ms))

    def delete(self, key: bytes) -> None:
        """Remove `key`."""
        self.operations.append((key, None, 0))
