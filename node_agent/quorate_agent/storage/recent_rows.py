"""The bound on the rows that Persistent zones cache unpacked: one for all zones of the process."""

from __future__ import annotations

from functools import cache
from typing import Final, Protocol
from weakref import WeakSet

from quorate_agent.machine.memory_limit import memory_limit

ROW_BYTES_MAX: Final = 512
"""Bytes of key and value of a cached row."""
_ROW_OVERHEAD_BYTES: Final = 200
MEMORY_SHARE: Final = 0.05
"""The most that all cached rows take of the memory limit."""
ROWS_MIN: Final = 16_384
ROWS_MAX: Final = 131_072
"""More would stop the event loop for more than a few hundredths of a second when they are freed."""


class CachesRows(Protocol):
    """A zone's storage, as far as it caches rows."""

    def age_recent(self) -> None:
        """Forget the rows that were not used since the last call."""


class RecentRows:
    """Counts the rows cached by all zones since they were aged; up to twice `rows_max` are kept."""

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self._count = 0
        self._zones: WeakSet[CachesRows] = WeakSet()

    def add_zone(self, zone: CachesRows) -> None:
        """Age this zone's rows too, as long as it is used."""
        self._zones.add(zone)

    def count(self, rows: int) -> None:
        """Count `rows` more; age those of all zones when there are enough."""
        self._count += rows
        if self._count >= self.rows_max:
            self._count = 0
            for zone in list(self._zones):
                zone.age_recent()


def rows_max_of(memory_bytes: int) -> int:
    """Return how many rows are counted until they are aged, with this memory limit."""
    both = 2 * (ROW_BYTES_MAX + _ROW_OVERHEAD_BYTES)  # those used since, and those from before
    return min(max(ROWS_MIN, int(memory_bytes * MEMORY_SHARE) // both), ROWS_MAX)


@cache
def recent_rows() -> RecentRows:
    """Return the count of this process."""
    return RecentRows(rows_max_of(memory_limit().bytes))
