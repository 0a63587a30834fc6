"""What another has stored behind the master's back: rows and registrations that it did not write
and has not read.

A master that lost the mandate may have one write under way that arrives after the next one has
read everything.  The next one meets it as a conflict when it writes that object, but of an object
that it has no reason to write it would never hear.  Nothing here reads or waits: the shell does.

A zone's record is none of these: what users declare is declared to every master, and one that has
been followed must not write a record again that the next one has removed with the zone.
"""

from collections.abc import Iterator, Mapping

from quorate.protocol.metastore import Key, NodeKey, Revision, ShardKey, Stored

PAUSES_S = (2.0, 5.0, 15.0)
"""Before each look after a start, when such a write is likely; then one a minute."""
PAUSE_LATER_S = 60.0


def pauses_s() -> Iterator[float]:
    """How long to wait before each look, in seconds; endless."""
    yield from PAUSES_S
    while True:
        yield PAUSE_LATER_S


class SecondLook:
    """Tells what is news in a look at everything from what the master has been writing itself."""

    def __init__(self) -> None:
        self._in_flight: set[Key] = set()
        self._touched: set[Key] = set()

    def write_begins(self, key: Key) -> None:
        """The master writes an object; until `write_ended` its revision is nobody's news."""
        self._in_flight.add(key)
        self._touched.add(key)

    def write_ended(self, key: Key) -> None:
        """What the object holds is known again: it was written, or read after a failed write."""
        self._in_flight.discard(key)

    def begin(self) -> None:
        """Everything is about to be read."""
        self._touched = set(self._in_flight)

    def unread(
        self, stored: Mapping[Key, Stored], revisions: Mapping[Key, Revision]
    ) -> list[tuple[Key, Stored]]:
        """Objects whose revision is not the one known; not those written since the look began."""
        return [
            (key, each)
            for key, each in stored.items()
            if isinstance(key, ShardKey | NodeKey)
            and key in revisions
            and key not in self._touched
            and revisions[key] != each.revision
        ]
