"""Holds back long updates of other agents while a zone's long values are written ahead of its
batch.

Meanwhile the turn of the values' partitions goes on, and new updates of these partitions join it.
If long ones did so, each would make the turn longer, perhaps without end.  So an `Append` with long
updates is held until no partition of the zone waits.  Later updates of the same agent and
partitions are held behind it, to keep their order.  Everything else passes.  At most one long held
Append per zone is taken per turn, because unpacking it blocks the loop for a tenth of a second.
When a link is lost, what came on it is dropped, because it will be sent again.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.protocol.messages.replication import Append
from quorate_agent.storage.long_values import LONG_BYTES


class HeldAppends:
    """The held Appends, by zone, in the order of arrival."""

    def __init__(self) -> None:
        self.going_on: frozenset[str] = frozenset()
        """Zones with partitions that wait for long values."""
        self._held: dict[str, list[tuple[str, Append]]] = {}

    def __bool__(self) -> bool:
        """Return whether an Append may have to wait, or waits."""
        return bool(self.going_on or self._held)

    def holds(self, zone: str) -> bool:
        """Return whether an Append of the zone may have to wait, or waits."""
        return zone in self.going_on or zone in self._held

    def hold(self, node: str, message: Append) -> Append | None:
        """Hold the parts of the message that must wait; return the rest, None if there is none."""
        zone = message.zone
        if not self.holds(zone):
            return message
        held = self._held.setdefault(zone, [])
        if _is_long(message):
            held.append((node, message))
            return None
        behind = {
            batch.partition for sender, before in held if sender == node for batch in before.batches
        }
        late = tuple([batch for batch in message.batches if batch.partition in behind])
        if not late:
            return message
        held.append((node, Append(zone, late)))
        passes = tuple([batch for batch in message.batches if batch.partition not in behind])
        return Append(zone, passes) if passes else None

    def turn_ended(self, going_on: Iterable[str]) -> list[tuple[str, Append]]:
        """Return the Appends to take now: in each zone not in `going_on`, all up to the first long
        one."""
        self.going_on = frozenset(going_on)
        taken: list[tuple[str, Append]] = []
        for zone in [zone for zone in self._held if zone not in self.going_on]:
            held = self._held[zone]
            count = next((at for at, each in enumerate(held, 1) if _is_long(each[1])), len(held))
            taken += held[:count]
            del held[:count]
            if not held:
                del self._held[zone]
        return taken

    def peer_down(self, node: str) -> None:
        """Drop what came from `node`: the link to it is lost."""
        for zone, held in list(self._held.items()):
            held[:] = [each for each in held if each[0] != node]
            if not held:
                del self._held[zone]


def _is_long(message: Append) -> bool:
    return sum(len(update) for batch in message.batches for update in batch.updates) > LONG_BYTES
