"""Decide when failed migrations are tried again, and how many a destination may get at once.

The wait belongs to a partition and a destination. Another destination for the same partition does
not wait, nor does another partition for the same destination. But if each of many migrations takes
long to fail, they hold up all others that share a source or a limit with them. So a destination
begins with two at a time and gets one more with each success; after a failure it begins again with
one.

Waits of one length are spread: attempts that failed together, as all to one agent do when it stops,
would otherwise all begin again together. The spread is computed from zone, partition, destination
and failures, so the same events give the same times again.

A node that lost a role although it was online also gets the role back only after a wait. A success
does not end that wait, because the hand-over succeeds even if the node gets stuck again a moment
later.
"""

from collections.abc import Collection
from zlib import crc32

import msgspec

FIRST_WAIT_MS = 1_000
"""Long enough for a passing cause to end: a lost message, a short freeze."""

LONGEST_WAIT_MS = 60_000
"""The wait doubles at each failure and is at most this, with its spread, so a destination that
recovers is used within a minute."""

SPREAD_PERCENT = 20
"""A wait is longer or shorter than the doubled one by up to this share of it."""

FIRST_AT_ONCE = 2
"""Limit of migrations at once for a node of which no migration has ended yet."""


STUCK_AFTER = 3
"""A migration that failed so often in succession is reported as stuck; it is tried on."""


class Wait(msgspec.Struct, frozen=True):
    """Do not try before `until_ms`, after so many `failures` in succession; `why`: of the last."""

    until_ms: int
    failures: int
    why: str = ""


class StuckMigration(msgspec.Struct, frozen=True):
    """A step of a partition that fails again and again: how often in succession, and why last."""

    partition: int
    destination: str | None
    attempts: int
    why: str

    @property
    def sentence(self) -> str:
        """The sentence for people, without a full stop."""
        to = f" to {self.destination}" if self.destination else ""
        return f"partition {self.partition}{to} failed {self.attempts} times, last: {self.why}"


class MigrationRetries:
    """Failures by attempt and by destination. The caller reports the end of every migration."""

    __slots__ = ("_taken_over", "_trusted_with", "_waits")

    def __init__(self) -> None:
        self._waits: dict[str, dict[int, dict[str | None, Wait]]] = {}  # zone, partition, node
        self._taken_over: dict[tuple[str, int], dict[str, Wait]] = {}
        self._trusted_with: dict[str, int] = {}

    def failed(
        self, zone: str, partition: int, destination: str | None, now_ms: int, why: str = ""
    ) -> Wait:
        """Note that the migration did not commit, and why. Return how long it waits."""
        waits = self._waits.setdefault(zone, {}).setdefault(partition, {})
        failures = waits[destination].failures + 1 if destination in waits else 1
        place = f"{zone} {partition} {destination}"
        waits[destination] = Wait(now_ms + _wait_ms(place, failures), failures, why)
        if destination is not None:
            self._trusted_with[destination] = 1
        return waits[destination]

    def succeeded(self, zone: str, partition: int, destination: str | None) -> None:
        """Note that the migration committed: its destination may get one more at once.

        The waits of the partition end.
        """
        self._waits.get(zone, {}).pop(partition, None)
        if destination is not None:
            self._trusted_with[destination] = self.at_most(destination) + 1

    def keep_only(self, zone: str, partition: int, destinations: Collection[str | None]) -> None:
        """Forget the failures of steps to other destinations: the partition needs them no more."""
        waits = self._waits.get(zone, {}).get(partition, {})
        for destination in [each for each in waits if each not in destinations]:
            del waits[destination]

    def taken_over(self, zone: str, partition: int, node: str, now_ms: int) -> None:
        """Note that another node became primary although `node` is online: it may be stuck."""
        waits = self._taken_over.setdefault((zone, partition), {})
        last = waits.get(node)
        is_again = last is not None and now_ms - last.until_ms < LONGEST_WAIT_MS
        failures = last.failures + 1 if last is not None and is_again else 1
        place = f"{zone} {partition} {node}"
        waits[node] = Wait(now_ms + _wait_ms(place, failures), failures)

    def returned(self, destination: str) -> None:
        """Forget the failures of the node: it is back with a new process."""
        self._trusted_with.pop(destination, None)
        for partitions in self._waits.values():
            for waits in partitions.values():
                waits.pop(destination, None)
        for roles in self._taken_over.values():
            roles.pop(destination, None)

    def forget_zone(self, zone: str) -> None:
        """Forget a deleted zone."""
        self._waits.pop(zone, None)
        for place in [place for place in self._taken_over if place[0] == zone]:
            del self._taken_over[place]

    def is_held_back(self, zone: str, partition: int, destination: str | None, now_ms: int) -> bool:
        """Return whether this attempt still waits."""
        waits = [self._waits.get(zone, {}).get(partition, {}).get(destination)]
        if destination is not None:
            waits.append(self._taken_over.get((zone, partition), {}).get(destination))
        return any(wait is not None and now_ms < wait.until_ms for wait in waits)

    def stuck(self, zone: str) -> tuple[StuckMigration, ...]:
        """Return what fails again and again in a zone, in the order of partitions."""
        return tuple(
            StuckMigration(partition, destination, wait.failures, wait.why)
            for partition, waits in sorted(self._waits.get(zone, {}).items())
            for destination, wait in waits.items()
            if wait.failures >= STUCK_AFTER
        )

    def at_most(self, destination: str) -> int:
        """Return how many migrations to this node may be active at once."""
        return self._trusted_with.get(destination, FIRST_AT_ONCE)


def _wait_ms(place: str, failures: int) -> int:
    longest_ms = LONGEST_WAIT_MS * 100 // (100 + SPREAD_PERCENT)
    doubled_ms = min(FIRST_WAIT_MS << min(failures - 1, 16), longest_ms)
    spread_ms = doubled_ms * SPREAD_PERCENT // 100
    return doubled_ms - spread_ms + crc32(f"{place} {failures}".encode()) % (2 * spread_ms + 1)
