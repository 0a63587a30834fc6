"""The zones of an agent that a turn visits: those awake, and those at rest that are due.

An agent has hundreds of zones, most of them at rest.  A zone is awake from when something happens
in it (`ZoneCopies.wake`) until it has had nothing to do for a while.  The end of each turn visits
the zones that are awake and no others.  A tick visits those that are due by time
(`ZoneCopies.look_ms`).

A wall clock that was set wakes every zone, because keys expire by it but ticks are due by the boot
clock.  The end of a lease wakes none: it is noted once for all roles that share it
(shared_leases.py), and often it is renewed before it concerns anybody.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.time import Now
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases

REST_AFTER_MS = 500
"""A zone goes to rest after this long with nothing in progress."""

CLOCK_SET_MS = 20
"""A wall clock that moved at least this much against the boot clock was set.  Smaller differences
are the time between reading the two clocks."""


class ZonesAwake:
    """The zones of one agent that are awake.  `awake`: by uid, in the order in which they woke."""

    def __init__(self, zones: Mapping[str, Replicas], leases: Leases, now: Now) -> None:
        """`zones`: all open zones by uid, which the caller keeps."""
        self.awake: dict[str, Replicas] = {}
        self._zones = zones
        self._leases = leases
        self._wall_ahead_ms = now.wall_ms - now.boot_ms

    def opened(self, zone: Replicas) -> None:
        """Note that a zone was opened: it is awake."""
        zone.awake = self.awake
        self.awake[zone.uid] = zone

    def closed(self, zone: Replicas) -> None:
        """Note that a zone was closed: nothing wakes it any more."""
        zone.awake = {}
        self.awake.pop(zone.uid, None)

    def tick(self, now: Now) -> None:
        """Visit each zone that is due by time."""
        self._leases.shared.note(now.boot_ms)
        if self._was_clock_set(now):
            for zone in self._zones.values():
                zone.wake()
        for zone in self._zones.values():
            zone.now = now
            if now.boot_ms >= zone.look_ms:
                zone.tick(now)
                if zone.at_rest and not _has_nothing_to_do(zone, now):
                    zone.wake()

    def _was_clock_set(self, now: Now) -> bool:
        ahead_ms = now.wall_ms - now.boot_ms
        if abs(ahead_ms - self._wall_ahead_ms) < CLOCK_SET_MS:
            return False
        self._wall_ahead_ms = ahead_ms
        return True

    def let_rest(self, now: Now) -> None:
        """Let zones rest in which nothing was in progress for a while.

        Each role of such a zone shares its lease, and there is nothing to settle for clients.
        """
        for zone in list(self.awake.values()):
            if zone.in_progress or zone.own_leases or now.boot_ms - zone.busy_ms < REST_AFTER_MS:
                continue
            if _has_nothing_to_do(zone, now):
                zone.at_rest = True
                del self.awake[zone.uid]

    def check(self) -> None:
        """Raise InvariantError unless each zone that is not awake has nothing to do."""
        for uid, zone in self._zones.items():
            if zone.at_rest is (uid in self.awake):
                raise InvariantError(f"zone {uid}: at rest {zone.at_rest}, and among those awake")
            if zone.at_rest and (zone.has_work or zone.own_leases or not zone.look_ms):
                raise InvariantError(f"zone {uid}: at rest with something to do")


def _has_nothing_to_do(zone: Replicas, now: Now) -> bool:
    return zone.look_ms > now.boot_ms and not zone.has_work and not zone.lacks_a_role
