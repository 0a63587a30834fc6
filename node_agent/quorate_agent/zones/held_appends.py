"""Long updates from other agents wait while long values are written ahead of a zone's batch.

The turn of their partitions goes on meanwhile, and updates of these partitions that come join it.
If long values did so, each would make it longer, perhaps without end.  So an `Append` with long
updates is held until no partition of the zone waits, and behind it what the same agent says of the
same partitions: their updates follow each other.  Everything else passes.  Of several that are held
one long one is taken per turn, for to take it apart keeps the loop for a tenth of a second.  What
came on a link that is lost is sent again, so it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.protocol.messages.replication import Append
from quorate_agent.storage.long_values import LONG_BYTES


class HeldAppends:
    """The held Appends, by zone, in the order of arrival."""

    def __init__(self) -> None:
        self.going_on: frozenset[str] = frozenset()
        """Zones of which partitions wait for long values."""
        self._held: dict[str, list[tuple[str, Append]]] = {}

    def __bool__(self) -> bool:
        """Whether an Append may have to wait, or waits."""
        return bool(self.going_on or self._held)

    def hold(self, node: str, message: Append) -> Append | None:
        """Hold the parts of the message that must wait; return the rest, None if there is none."""
        zone = message.zone
        if zone not in self.going_on and zone not in self._held:
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
        """In all other zones no partition waits: what they take now, up to a long one in each."""
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
        """The link to `node` is lost."""
        for zone, held in list(self._held.items()):
            held[:] = [each for each in held if each[0] != node]
            if not held:
                del self._held[zone]


def _is_long(message: Append) -> bool:
    return sum(len(update) for batch in message.batches for update in batch.updates) > LONG_BYTES
