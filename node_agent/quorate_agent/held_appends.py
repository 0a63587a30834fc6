"""Long updates from other agents wait while a turn writes long values ahead of its batch.

Such a turn of a zone goes on, and what comes meanwhile joins it.  If long values did so, each
would make it longer, perhaps without end, and no small write in it would be answered.  So an
`Append` with long updates is held until the turn has ended, and those of the same agent behind it
too: their updates follow each other.  What came on a link that is lost is sent again, so it is
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.protocol.messages import Append

LONG_BYTES = 256 * 1024
"""Updates of an `Append` that have more are held."""


class HeldAppends:
    """The held Appends, by zone, in the order of arrival."""

    def __init__(self) -> None:
        self.going_on: frozenset[str] = frozenset()
        """Zones whose turn goes on."""
        self._held: dict[str, list[tuple[str, Append]]] = {}

    def hold(self, node: str, message: Append) -> bool:
        """Whether the message is held."""
        zone = message.zone
        if zone not in self.going_on:
            return False
        held = self._held.setdefault(zone, [])
        if _size(message) <= LONG_BYTES and all(sender != node for sender, _ in held):
            return False
        held.append((node, message))
        return True

    def turn_ended(self, going_on: Iterable[str]) -> list[tuple[str, Append]]:
        """The turns of all other zones have ended: what was held for them."""
        self.going_on = frozenset(going_on)
        ended = [zone for zone in self._held if zone not in self.going_on]
        return [each for zone in ended for each in self._held.pop(zone)]

    def peer_down(self, node: str) -> None:
        """The link to `node` is lost."""
        for zone, held in self._held.items():
            self._held[zone] = [each for each in held if each[0] != node]


def _size(message: Append) -> int:
    return sum(len(update) for batch in message.batches for update in batch.updates)
