"""Long updates from other agents wait while long values are written ahead of a zone's batch.

The turn of their partitions goes on meanwhile, and updates of these partitions that come join it.
If long values did so, each would make it longer, perhaps without end.  So an `Append` with long
updates is held until no partition of the zone waits, and behind it what the same agent says of the
same partitions: their updates follow each other.  Everything else passes.  What came on a link that
is lost is sent again, so it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.protocol.messages import Append
from quorate_agent.storage.long_values import LONG_BYTES


class HeldAppends:
    """The held Appends, by zone, in the order of arrival."""

    def __init__(self) -> None:
        self.going_on: frozenset[str] = frozenset()
        """Zones of which partitions wait for long values."""
        self._held: dict[str, list[tuple[str, Append]]] = {}

    def hold(self, node: str, message: Append) -> Append | None:
        """Hold the parts of the message that must wait; return the rest, None if there is none."""
        zone = message.zone
        if zone not in self.going_on:
            return message
        held = self._held.setdefault(zone, [])
        if _size(message) > LONG_BYTES:
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
        """In all other zones no partition waits: what was held for them."""
        self.going_on = frozenset(going_on)
        ended = [zone for zone in self._held if zone not in self.going_on]
        return [each for zone in ended for each in self._held.pop(zone)]

    def peer_down(self, node: str) -> None:
        """The link to `node` is lost."""
        for zone, held in self._held.items():
            self._held[zone] = [each for each in held if each[0] != node]


def _size(message: Append) -> int:
    return sum(len(update) for batch in message.batches for update in batch.updates)
