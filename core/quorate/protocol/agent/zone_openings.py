"""Zones that the master told of and that are not open here: they wait for a turn, or were refused.

Opening a zone takes many milliseconds, and other zones serve meanwhile: so a turn opens one.  An
agent that has no room for a zone, or cannot make its storage, refuses that zone with a reason and
goes on with the others; it tries again by and by, and when something was freed.  Always the one
that was told first: agents that have room for some zones only then have it for the same ones.
Source: docs/protocol.md, section 7.
"""

from collections.abc import Iterable

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord

RETRY_FIRST_MS = 1_000
RETRY_MAX_MS = 60_000


class Opening:
    """One zone that is to be opened.  `reason`: why it was refused last; empty: not tried yet."""

    __slots__ = ("again_ms", "delay_ms", "reason", "record", "rows")

    def __init__(self, record: ZoneRecord) -> None:
        self.record = record
        self.rows: dict[int, PartitionRow] = {}
        self.reason = ""
        self.again_ms = -(1 << 40)
        self.delay_ms = RETRY_FIRST_MS


class ZoneOpenings:
    """What of the master's zones an agent has still to open, in the order in which it was told."""

    def __init__(self) -> None:
        self._openings: dict[str, Opening] = {}

    def told(self, record: ZoneRecord, rows: Iterable[PartitionRow]) -> Opening:
        """Keep the zone and the newest of its rows until it is open."""
        opening = self._openings.get(record.uid)
        if opening is None:
            opening = self._openings[record.uid] = Opening(record)
        if opening.record.port != record.port:  # it may have been refused for the one it had
            opening.again_ms = -(1 << 40)
        opening.record = record
        for row in rows:
            known = opening.rows.get(row.partition)
            if known is None or known.version < row.version:
                opening.rows[row.partition] = row
        return opening

    def due(self, now_ms: int) -> Opening | None:
        """The first that is to be tried now."""
        for opening in self._openings.values():
            if now_ms >= opening.again_ms:
                return opening
        return None

    def refused(self, opening: Opening, reason: str, now_ms: int) -> None:
        """It could not be opened: later again, each time after a longer while."""
        opening.reason = reason
        opening.again_ms = now_ms + opening.delay_ms
        opening.delay_ms = min(2 * opening.delay_ms, RETRY_MAX_MS)

    def try_again(self) -> None:
        """Something was freed: what was refused may find room now."""
        for opening in self._openings.values():
            opening.again_ms = -(1 << 40)
            opening.delay_ms = RETRY_FIRST_MS

    def forget(self, uid: str) -> None:
        """The zone is open, or deleted."""
        self._openings.pop(uid, None)

    def all(self) -> list[str]:
        """Every zone that is not open."""
        return list(self._openings)

    def untried(self) -> list[str]:
        """Zones that wait for their turn."""
        return [uid for uid, opening in self._openings.items() if not opening.reason]
