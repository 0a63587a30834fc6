"""Finds rows and registrations that another process stored and this master has not read.

A master that lost the mandate may have one write under way that arrives after the next master has
read everything.  The next master meets it as a conflict when it writes the same object, but it
might never write that object.  Nothing here reads or waits: the shell does.

Missing or new shards are reported only if the zone's record is there and does not say that the zone
is being deleted.  New shards of a zone that this master has deleted are reported as well: nothing
else would ever remove them.  Missing registrations are always reported.

Zones' records are reported if another process changed them: they have the zone's data nodes.  One
that is gone, or of a zone that is being deleted, is not.  What users declare is declared to every
master, and a master with a successor must not write a record again that its successor has removed
with the zone.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import Key, NodeKey, Revision, ShardKey, Stored, ZoneKey

PAUSES_S = (2.0, 5.0, 15.0)
"""Seconds before each look after a start, when such a write is likely; then one a minute."""
PAUSE_LATER_S = 60.0


def pauses_s() -> Iterator[float]:
    """Yield how long to wait before each look, in seconds; endless."""
    yield from PAUSES_S
    while True:
        yield PAUSE_LATER_S


class SecondLook:
    """Tells which objects seen in a look at everything were changed by another process."""

    def __init__(self) -> None:
        self._in_flight: set[Key] = set()
        self._looks: list[set[Key]] = []
        self._ended: set[str] = set()
        """Ids of zones, kept as long as this master leads: a late write may arrive at any time."""

    def note_gone(self, key: Key) -> None:
        """Note that the object is not there: a zone without its record has ended."""
        if isinstance(key, ZoneKey):
            self._ended.add(key.uid)

    def is_of_ended_zone(self, key: Key, revisions: Mapping[Key, Revision]) -> bool:
        """Return whether the object is a shard of a zone that has ended under this master."""
        return (
            isinstance(key, ShardKey)
            and key.uid in self._ended
            and ZoneKey(key.uid) not in revisions
        )

    def write_begins(self, key: Key) -> None:
        """Note that the master writes an object; until `write_ended` its revision is no news."""
        self._in_flight.add(key)
        for touched in self._looks:
            touched.add(key)

    def write_ended(self, key: Key) -> None:
        """Note that the object's content is known again: written, or read after a failed write."""
        self._in_flight.discard(key)

    def is_writing(self, key: Key) -> bool:
        """Return whether a write of the object is under way."""
        return key in self._in_flight

    @contextmanager
    def looking(self) -> Iterator[Collection[Key]]:
        """Yield the objects that the master writes while the block reads: what was read of these
        may be outdated."""
        touched = self.begin()
        try:
            yield touched
        finally:
            self.end(touched)

    def begin(self) -> set[Key]:
        """Begin a look; return the set of objects that the master writes until its end."""
        touched = set(self._in_flight)
        self._looks.append(touched)
        return touched

    def end(self, touched: set[Key]) -> None:
        """End the look that has this set."""
        self._looks = [each for each in self._looks if each is not touched]

    def unread(
        self,
        stored: Mapping[Key, Stored],
        revisions: Mapping[Key, Revision],
        touched: Collection[Key],
    ) -> list[tuple[Key, Stored | None]]:
        """Return the objects whose revision is not the known one (None: gone), except those that
        were `touched` while `stored` was read.

        New shards are included: a master that waits for agents to tell of lost rows does not write
        them, so it would meet no conflict.
        """
        new = [
            key
            for key in stored
            if key not in revisions
            and (_is_wanted(key, stored, revisions) or self.is_of_ended_zone(key, revisions))
        ]
        return [
            (key, stored.get(key))
            for key in [*revisions, *new]
            if (isinstance(key, ShardKey | NodeKey) or _is_kept(key, stored)) and key not in touched
            if (_is_gone(key, stored) if key not in stored else _is_other(key, stored, revisions))
        ]


def _is_kept(key: Key, stored: Mapping[Key, Stored]) -> bool:
    """Return whether the record of a zone is there, and the zone is not being deleted."""
    head = stored.get(key)
    return head is not None and isinstance(head.value, ZoneRecord) and not head.value.deleting


def _is_other(key: Key, stored: Mapping[Key, Stored], revisions: Mapping[Key, Revision]) -> bool:
    return revisions.get(key) != stored[key].revision


def _is_wanted(key: Key, stored: Mapping[Key, Stored], revisions: Mapping[Key, Revision]) -> bool:
    return isinstance(key, ShardKey) and ZoneKey(key.uid) in revisions and _is_led(key, stored)


def _is_gone(key: Key, stored: Mapping[Key, Stored]) -> bool:
    return _is_led(key, stored) if isinstance(key, ShardKey) else True


def _is_led(key: ShardKey, stored: Mapping[Key, Stored]) -> bool:
    return _is_kept(ZoneKey(key.uid), stored)
