"""Which zones of an agent are visited: those that are awake, and those at rest that are due.

An agent has hundreds of zones, most of them at rest.  A zone is awake from when something happens
in it (`Replicas.wake`) until it has had nothing to do for a while.  The end of each turn visits the
zones that are awake and no others.  A tick visits those that are due by time (`Replicas.look_ms`).

A zone in which nothing is in progress is also woken by two things that it cannot see itself:

- the end of a lease that its roles share (shared_leases.py)
- a wall clock that was set, because keys expire by it but ticks are due by the boot clock
"""

from __future__ import annotations

from collections.abc import Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.time import Now
from quorate.protocol.agent.leases import Leases
from quorate.protocol.agent.replicas import Replicas

REST_AFTER_MS = 500
"""A zone goes to rest after this long with nothing in progress.  Going to rest and waking cost a
little for each of its roles."""

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
        if self._is_shared_lease_over(now) or self._was_clock_set(now):
            self._leases.shared.forget()
            for zone in self._zones.values():
                zone.wake()
        for zone in self._zones.values():
            zone.now = now
            if now.boot_ms >= zone.look_ms:
                zone.tick(now)
                if zone.at_rest and not _has_nothing_to_do(zone, now):
                    zone.wake()

    def _is_shared_lease_over(self, now: Now) -> bool:
        return self._leases.shared.first_end_ms <= now.boot_ms

    def _was_clock_set(self, now: Now) -> bool:
        ahead_ms = now.wall_ms - now.boot_ms
        if abs(ahead_ms - self._wall_ahead_ms) < CLOCK_SET_MS:
            return False
        self._wall_ahead_ms = ahead_ms
        return True

    def let_rest(self, now: Now) -> None:
        """Let zones share leases and rest, where nothing was in progress for a while.

        A zone rests only if it also has nothing to settle for its clients.
        """
        for zone in list(self.awake.values()):
            if now.boot_ms - zone.busy_ms < REST_AFTER_MS or zone.look_ms <= now.boot_ms:
                continue
            if not zone.shares_leases:
                self._share_leases(zone)
            if zone.shares_leases and _has_nothing_to_do(zone, now):
                zone.at_rest = True
                del self.awake[zone.uid]

    def _share_leases(self, zone: Replicas) -> None:
        grants = [(role, role.grants()) for role in zone.roles.values()]
        known = [(role, found) for role, found in grants if found is not None]
        if len(known) < len(grants):
            return  # a role whose row has two sets of voters (rebuilt) is counted alone
        for role, found in known:
            role.lease = self._leases.shared.share(found)
        zone.shares_leases = True

    def check(self) -> None:
        """Raise InvariantError unless each zone that is not awake has nothing to do."""
        for uid, zone in self._zones.items():
            if zone.at_rest is (uid in self.awake):
                raise InvariantError(f"zone {uid}: at rest {zone.at_rest}, and among those awake")
            if zone.at_rest and (zone.has_work or not zone.shares_leases):
                raise InvariantError(f"zone {uid}: at rest with something to do")
            if zone.shares_leases and not zone.look_ms:
                raise InvariantError(f"zone {uid}: shares leases while something is under way")


def _has_nothing_to_do(zone: Replicas, now: Now) -> bool:
    return zone.look_ms > now.boot_ms and not zone.has_work and not zone.lacks_a_role
