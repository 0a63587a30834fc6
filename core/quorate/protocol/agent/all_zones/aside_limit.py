"""Keeps within bounds what an agent has set aside, over all its zones together.

Oldest first, rows are dropped until the rest fits.  Those of one partition are bounded in number as
well: with little data, a partition that is reset every few seconds would keep thousands.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quorate.facts.time import Now
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.record import KeptRows
from quorate.protocol.settings import ProtocolSettings

CHECK_MS = 1000
PER_PARTITION_MAX = 8


class _Aside(NamedTuple):
    """Rows that are set aside; sorts by age."""

    since_ms: int
    uid: str
    partition: int
    generation: int
    kept: KeptRows


class AsideLimit:
    """The limit of one agent.  `dropped`: zone uid -> how often rows were dropped before their
    time, since the process started."""

    def __init__(self, zones: Mapping[str, Replicas], settings: ProtocolSettings) -> None:
        """`zones`: all open zones by uid."""
        self.dropped: dict[str, int] = {}
        self._dropping: list[_Aside] = []  # since the last check; a batch may find no room
        self._zones = zones
        self._bytes_max = settings.aside_bytes_max
        self._checked_ms = 0

    def tick(self, now: Now) -> None:
        """Drop what is above the bounds, once a second."""
        if now.boot_ms - self._checked_ms < CHECK_MS:
            return
        self._checked_ms = now.boot_ms
        self._count_dropped()
        found = sorted(
            _Aside(kept.since_ms, uid, partition, kept.generation, kept)
            for uid, zone in self._zones.items()
            for partition in zone.aside
            for kept in zone.copies[partition].kept_rows
        )
        size = sum(each.kept.bytes for each in found)
        for each in found:
            zone = self._zones[each.uid]
            copy = zone.copies[each.partition]
            if size <= self._bytes_max and len(copy.kept_rows) <= PER_PARTITION_MAX:
                continue
            size -= each.kept.bytes
            copy.drop_aside((each.kept,))
            zone.touch(copy)
            self._dropping.append(each)

    def _count_dropped(self) -> None:
        for each in self._dropping:
            zone = self._zones.get(each.uid)
            copy = zone.copies.get(each.partition) if zone is not None else None
            if copy is None or each.kept not in copy.kept_rows:
                self.dropped[each.uid] = self.dropped.get(each.uid, 0) + 1
        self._dropping.clear()
