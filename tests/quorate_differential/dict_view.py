"""A KeyView over a dict: handlers of commands without an agent around them."""

from collections.abc import Callable, Mapping

from quorate.protocol.storage import Row
from quorate_agent.resp.view import is_live


class DictView:
    """Its rows, and how often a handler changed one."""

    def __init__(self, now_ms: int = 0, resp3: bool = False) -> None:
        self.rows: dict[bytes, Row] = {}
        self.now_ms = now_ms
        self.resp3 = resp3
        self.changes = 0
        self._removed: dict[bytes, int] = {}
        self.get: Callable[[bytes], Row | None] = self._get

    def _get(self, key: bytes) -> Row | None:
        row = self.rows.get(key)
        return row if row is not None and is_live(row, self.now_ms) else None

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        self.changes += 1
        self.rows[key] = Row(self.changes, 1, expires_at_ms, value)

    def delete(self, key: bytes) -> None:
        self.changes += 1
        del self.rows[key]
        self._removed[key] = self.changes

    def position(self) -> int:
        return self.changes

    def written_since(self, positions: Mapping[bytes, int]) -> bool:
        return any(self._written_at(key) > position for key, position in positions.items())

    def _written_at(self, key: bytes) -> int:
        row = self.rows.get(key)
        return self._removed.get(key, 0) if row is None else row.counter
