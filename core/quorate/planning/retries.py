"""Which failed migrations wait before they are tried again, and how far a destination is trusted.

The wait belongs to a partition and a destination: another destination for the same partition, or
another partition for the same destination, does not wait.  But where each takes long to fail, many
of them would hold up everybody who shares a source or a limit with them: a destination begins with
two at a time and gets one more with each that succeeds; after a failure it begins again with one.

A node from which a role was taken although it was there gets the role back after a wait, too.  That
one no success ends, for the hand-over succeeds also where the node is stuck again a moment later.
"""

import msgspec

FIRST_WAIT_MS = 1_000
"""Long enough for what was in the way to pass: a message lost, a short freeze."""

LONGEST_WAIT_MS = 60_000
"""Doubled at each failure up to this; a destination that comes back is used within a minute."""

FIRST_AT_ONCE = 2
"""A node that nothing is known of is given no more than this at first."""


class Wait(msgspec.Struct, frozen=True):
    """Not before `until_ms`, after so many failures in succession."""

    until_ms: int
    failures: int


class Retries:
    """What failed last, by attempt and by destination; told of every end of a migration."""

    __slots__ = ("_taken_over", "_trusted_with", "_waits")

    def __init__(self) -> None:
        self._waits: dict[tuple[str, int], dict[str | None, Wait]] = {}  # zone, partition; node
        self._taken_over: dict[tuple[str, int], dict[str, Wait]] = {}
        self._trusted_with: dict[str, int] = {}

    def failed(self, zone: str, partition: int, destination: str | None, now_ms: int) -> Wait:
        """The migration did not commit; answers how long it waits."""
        waits = self._waits.setdefault((zone, partition), {})
        failures = waits[destination].failures + 1 if destination in waits else 1
        waits[destination] = _wait(now_ms, failures)
        if destination is not None:
            self._trusted_with[destination] = 1
        return waits[destination]

    def succeeded(self, zone: str, partition: int, destination: str | None) -> None:
        """The migration committed: its destination is well, and the partition has moved on."""
        self._waits.pop((zone, partition), None)
        if destination is not None:
            self._trusted_with[destination] = self.at_most(destination) + 1

    def taken_over(self, zone: str, partition: int, node: str, now_ms: int) -> None:
        """Another was made primary although `node`, which was, is there: it may be stuck again."""
        waits = self._taken_over.setdefault((zone, partition), {})
        last = waits.get(node)
        is_again = last is not None and now_ms - last.until_ms < LONGEST_WAIT_MS
        waits[node] = _wait(now_ms, last.failures + 1 if last is not None and is_again else 1)

    def returned(self, destination: str) -> None:
        """The node is back, with a new process: what was in its way may be gone."""
        self._trusted_with.pop(destination, None)
        for waits in self._waits.values():
            waits.pop(destination, None)
        for roles in self._taken_over.values():
            roles.pop(destination, None)

    def forget_zone(self, zone: str) -> None:
        """The zone was deleted."""
        for attempt in [attempt for attempt in self._waits if attempt[0] == zone]:
            del self._waits[attempt]
        for place in [place for place in self._taken_over if place[0] == zone]:
            del self._taken_over[place]

    def is_held_back(self, zone: str, partition: int, destination: str | None, now_ms: int) -> bool:
        """Whether this attempt still waits."""
        place = (zone, partition)
        waits = [self._waits.get(place, {}).get(destination)]
        if destination is not None:
            waits.append(self._taken_over.get(place, {}).get(destination))
        return any(wait is not None and now_ms < wait.until_ms for wait in waits)

    def at_most(self, destination: str) -> int:
        """How many migrations to this node may be under way at once, as far as it is known."""
        return self._trusted_with.get(destination, FIRST_AT_ONCE)


def _wait(now_ms: int, failures: int) -> Wait:
    wait_ms = min(FIRST_WAIT_MS << min(failures - 1, 16), LONGEST_WAIT_MS)
    return Wait(now_ms + wait_ms, failures)
