"""Zones that the master announced and that are not open here: queued, or refused.

Opening a zone takes many milliseconds, during which other zones do not serve, so a turn opens at
most one.  An agent that has no room for a zone, or cannot create its storage, refuses that zone
with a reason and goes on with the others.  It retries after growing delays, and when something was
freed.  The zone announced first is always first, so agents with room for only some zones have it
for the same ones.  Source: docs/protocol.md, section 7.
"""

from collections.abc import Iterable

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import ZoneReady

RETRY_FIRST_MS = 1_000
RETRY_MAX_MS = 60_000


class Opening:
    """One zone to be opened.  `reason`: why it was refused last; empty: not tried yet."""

    __slots__ = ("again_ms", "delay_ms", "reason", "record", "rows")

    def __init__(self, record: ZoneRecord) -> None:
        self.record = record
        self.rows: dict[int, PartitionRow] = {}
        self.reason = ""
        self.again_ms = -(1 << 40)
        self.delay_ms = RETRY_FIRST_MS


class ZoneOpenings:
    """The master's zones that an agent has not opened yet, in the order of announcement."""

    def __init__(self) -> None:
        self._openings: dict[str, Opening] = {}

    def told(self, record: ZoneRecord, rows: Iterable[PartitionRow]) -> Opening:
        """Keep the zone and the newest of its rows until it is open."""
        opening = self._openings.get(record.uid)
        if opening is None:
            opening = self._openings[record.uid] = Opening(record)
        if opening.record.port != record.port:  # the old port may have been the reason of a refusal
            opening.again_ms = -(1 << 40)
        opening.record = record
        for row in rows:
            known = opening.rows.get(row.partition)
            if known is None or known.version < row.version:
                opening.rows[row.partition] = row
        return opening

    def due(self, now_ms: int) -> Opening | None:
        """Return the first zone to try now; None if there is none."""
        for opening in self._openings.values():
            if now_ms >= opening.again_ms:
                return opening
        return None

    def refused(self, opening: Opening, reason: str, now_ms: int) -> None:
        """Note that the zone could not be opened, and double the delay until the next attempt."""
        opening.reason = reason
        opening.again_ms = now_ms + opening.delay_ms
        opening.delay_ms = min(2 * opening.delay_ms, RETRY_MAX_MS)

    def try_again(self) -> None:
        """Try all refused zones again, because something was freed."""
        for opening in self._openings.values():
            opening.again_ms = -(1 << 40)
            opening.delay_ms = RETRY_FIRST_MS

    def forget(self, uid: str) -> None:
        """Remove the zone, which is open or deleted."""
        self._openings.pop(uid, None)

    def all(self) -> list[str]:
        """Return every zone that is not open."""
        return list(self._openings)

    def untried(self) -> list[str]:
        """Return the zones that were not tried yet."""
        return [uid for uid, opening in self._openings.items() if not opening.reason]


def knows_ports(record: ZoneRecord, node: str, ready: ZoneReady) -> bool:
    """Return whether this record shows that the master knows the client ports of `node`."""
    if ready.external_port and record.external_ports.get(node, 0) != ready.external_port:
        return False
    return record.ports.get(node, 0) == ready.port
