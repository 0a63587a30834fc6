"""Holds back long updates of other agents while a zone's long values are written ahead of its
batch.

Meanwhile the turn of the values' partitions goes on, and new updates of these partitions join it.
If long ones did so, each would make the turn longer, perhaps without end.  So an `Append` with long
updates is held until no partition of the zone waits.  Later updates of the same link and
partitions are held behind it, to keep their order.  Everything else passes.  At most one long held
Append per zone is taken per turn, because unpacking it blocks the loop for a tenth of a second.
When a link is lost, what came on it is dropped, because it will be sent again.

A disk may be slower than the stream of long values.  So once `HELD_BYTES_MAX` are held, further
Appends that must wait are dropped, as if lost in transit.  The primary repeats its position to
copies that are behind, and they fetch what they lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from quorate.protocol.messages.replication import Append
from quorate_agent.storage.long_values import LONG_BYTES

HELD_BYTES_MAX = 64 * 1024 * 1024
"""Bytes held by all zones together; a single Append may be longer."""

L = TypeVar("L", bound=Hashable)

BATCH_BYTES = 512
"""Bytes that a batch counts besides its updates: about the memory of its objects."""


class HeldAppends(Generic[L]):
    """The held Appends, by zone, in the order of arrival, each with the link that brought it."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.going_on: frozenset[str] = frozenset()
        """Zones with partitions that wait for long values."""
        self.bytes = 0
        """Size of all that is held."""
        self._bytes_max = bytes_max
        self._held: dict[str, list[tuple[L, Append]]] = {}
        self._batches: Counter[tuple[L, str, int]] = Counter()  # by link, zone and partition

    def __bool__(self) -> bool:
        """Return whether an Append may have to wait, or waits."""
        return bool(self.going_on or self._held)

    def holds(self, zone: str) -> bool:
        """Return whether an Append of the zone may have to wait, or waits."""
        return zone in self.going_on or zone in self._held

    def hold(self, link: L, message: Append) -> Append | None:
        """Hold the parts of the message that must wait; return the rest, None if there is none.

        Without room to hold them they are dropped."""
        zone = message.zone
        if not self.holds(zone):
            return message
        if _is_long(message):
            self._add(link, message)
            return None
        held = self._batches
        late = tuple([each for each in message.batches if held[link, zone, each.partition]])
        if not late:
            return message
        self._add(link, Append(zone, late))
        passes = tuple([each for each in message.batches if not held[link, zone, each.partition]])
        return Append(zone, passes) if passes else None

    def _add(self, link: L, message: Append) -> None:
        if not self._held or self.bytes + _size(message) <= self._bytes_max:
            self._held.setdefault(message.zone, []).append((link, message))
            self._count(link, message, 1)

    def turn_ended(self, going_on: Iterable[str]) -> list[tuple[L, Append]]:
        """Return the Appends to take now: in each zone not in `going_on`, all up to the first long
        one."""
        self.going_on = frozenset(going_on)
        taken: list[tuple[L, Append]] = []
        for zone in [zone for zone in self._held if zone not in self.going_on]:
            held = self._held[zone]
            count = next((at for at, each in enumerate(held, 1) if _is_long(each[1])), len(held))
            taken += held[:count]
            self._remove(zone, held[:count], held[count:])
        return taken

    def link_down(self, link: L) -> None:
        """Drop what came on a link that is lost."""
        for zone, held in list(self._held.items()):
            dropped = [each for each in held if each[0] == link]
            self._remove(zone, dropped, [each for each in held if each[0] != link])

    def _remove(
        self, zone: str, removed: list[tuple[L, Append]], kept: list[tuple[L, Append]]
    ) -> None:
        for link, message in removed:
            self._count(link, message, -1)
        if kept:
            self._held[zone] = kept
        else:
            del self._held[zone]
        if not self._held:
            self._batches.clear()

    def _count(self, link: L, message: Append, by: int) -> None:
        self.bytes += by * _size(message)
        for batch in message.batches:
            self._batches[link, message.zone, batch.partition] += by


def _update_bytes(message: Append) -> int:
    return sum(len(update) for batch in message.batches for update in batch.updates)


def _is_long(message: Append) -> bool:
    return _update_bytes(message) > LONG_BYTES


def _size(message: Append) -> int:
    return _update_bytes(message) + BATCH_BYTES * len(message.batches)
