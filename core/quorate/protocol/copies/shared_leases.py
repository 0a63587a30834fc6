"""Lease ends of primaries, computed once for all roles that the same agents grant.

Heartbeats never end, and an agent may be primary of thousands of partitions.  Roles with the same
voters and promises share one `ServingUntil`.  An answer to a heartbeat recomputes these instead of
every role.  A role whose voters or promises change takes another one (`ZoneCopies.renew_lease`).  A
role with several sets of voters (a migration in joint mode, a rebuilt row) has one of its own.
"""

from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

FOREVER = 1 << 62
"""The end of the lease that a primary grants itself."""
NO_CONTACT_MS = -(1 << 60)
"""Of a process that was not in contact with a master yet."""
UNLIMITED = FOREVER - NO_CONTACT_MS
"""An isolation timeout that is never over, whenever the last contact was."""


class ServingUntil:
    """The lease of a role, or of several roles.

    - `ms`: the boot time, in ms, until which a quorum of the voters grants it
    - `lapsed_ms`: the boot time at which a tick found that it was over; 0: it is not.  Time before
      that does not count, because a process that was suspended could not ask for its leases
    """

    __slots__ = ("__weakref__", "lapsed_ms", "ms")

    def __init__(self, ms: int, lapsed_ms: int = 0) -> None:
        self.ms = ms
        self.lapsed_ms = lapsed_ms

    def note(self, now_ms: int) -> None:
        """Note whether the lease is over; called with each tick."""
        if self.ms > now_ms:
            self.lapsed_ms = 0
        elif not self.lapsed_ms:
            self.lapsed_ms = now_ms


class Grants(NamedTuple):
    """Everything that a role's lease depends on, besides the leases themselves.

    - `nodes`: the other voters; `promised`: whether each has promised the role's term
    - `votes`: whether the role's own node votes
    - `quorum_index`: the index of the quorum's lease end, in rising order
    - `isolation_ms`: how long the role may serve without contact to the master
    """

    nodes: tuple[str, ...]
    promised: tuple[bool, ...]
    votes: bool
    quorum_index: int
    isolation_ms: int = UNLIMITED


def lease_end(grants: Grants, held_until: Mapping[str, int], contact_ms: int) -> int:
    """Return until when the role may serve (boot ms): a quorum of the voters grants the lease.

    `contact_ms`: when the agent was last in contact with the master.
    """
    get = held_until.get
    ranked = [
        get(node, 0) if has_promised else -1
        for node, has_promised in zip(grants.nodes, grants.promised, strict=True)
    ]
    if grants.votes:
        ranked.append(FOREVER)
    ranked.sort()
    return min(ranked[grants.quorum_index], isolated_at(contact_ms, grants.isolation_ms))


def isolated_at(contact_ms: int, isolation_ms: int) -> int:
    """Return when an agent that was last in contact at `contact_ms` stops serving (boot ms)."""
    return max(contact_ms + isolation_ms, 0)


class SharedLeases:
    """The shared leases of one agent, each kept while a role has it.

    - `lapsed_ms`: when the first of those that are over was found to be over (boot ms); 0: none is
    - `contact_ms`: when the agent was last in contact with the master (boot ms).  Each change is
      followed by `recount`
    """

    def __init__(self, held_until: Mapping[str, int]) -> None:
        """`held_until`: node -> until when its lease runs.  Each change is followed by
        `recount`."""
        self._held_until = held_until
        self._by_grants: WeakValueDictionary[Grants, ServingUntil] = WeakValueDictionary()
        self.lapsed_ms = 0
        self.contact_ms = NO_CONTACT_MS

    def share(self, grants: Grants) -> ServingUntil:
        """Return the lease that all roles with these grants share."""
        shared = self._by_grants.get(grants)
        if shared is None:
            shared = ServingUntil(self._end(grants))
            self._by_grants[grants] = shared
        return shared

    def recount(self) -> None:
        """Recompute the shared leases, because an agent's lease has changed."""
        for grants, shared in self._by_grants.items():
            shared.ms = self._end(grants)

    def _end(self, grants: Grants) -> int:
        return lease_end(grants, self._held_until, self.contact_ms)

    def note(self, now_ms: int) -> None:
        """Note which shared leases are over; called with each tick, before zones are visited."""
        lapsed: list[int] = []
        for shared in self._by_grants.values():
            shared.note(now_ms)
            if shared.lapsed_ms:
                lapsed.append(shared.lapsed_ms)
        self.lapsed_ms = min(lapsed, default=0)
