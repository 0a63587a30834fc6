"""Lease ends of primaries, computed once for all roles that the same agents grant.

Heartbeats never end, and an agent may be primary of thousands of partitions.  Roles with the same
voters and promises share one `ServingUntil`.  An answer to a heartbeat recomputes these instead of
every role.  A role whose voters or promises change takes another one (`ZoneCopies.renew_lease`).  A
role with several sets of voters (a migration in joint mode, a rebuilt row) has one of its own.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

FOREVER = 1 << 62
"""The end of the lease that a primary grants itself."""


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
    """

    nodes: tuple[str, ...]
    promised: tuple[bool, ...]
    votes: bool
    quorum_index: int


def lease_end(
    nodes: Sequence[str],
    promised: Sequence[bool],
    votes: bool,
    quorum_index: int,
    held_until: Mapping[str, int],
) -> int:
    """Return until when a quorum of the voters grants the lease (boot ms); see `Grants`."""
    get = held_until.get
    ranked = [
        get(node, 0) if has_promised else -1
        for node, has_promised in zip(nodes, promised, strict=True)
    ]
    if votes:
        ranked.append(FOREVER)
    ranked.sort()
    return ranked[quorum_index]


class SharedLeases:
    """The shared leases of one agent, each kept while a role has it.

    `lapsed_ms`: when the first of those that are over was found to be over (boot ms); 0: none is.
    """

    def __init__(self, held_until: Mapping[str, int]) -> None:
        """`held_until`: node -> until when its lease runs.  Each change is followed by
        `recount`."""
        self._held_until = held_until
        self._by_grants: WeakValueDictionary[Grants, ServingUntil] = WeakValueDictionary()
        self.lapsed_ms = 0

    def share(self, grants: Grants) -> ServingUntil:
        """Return the lease that all roles with these grants share."""
        shared = self._by_grants.get(grants)
        if shared is None:
            shared = ServingUntil(lease_end(*grants, self._held_until))
            self._by_grants[grants] = shared
        return shared

    def recount(self) -> None:
        """Recompute the shared leases, because an agent's lease has changed."""
        for grants, shared in self._by_grants.items():
            shared.ms = lease_end(*grants, self._held_until)

    def note(self, now_ms: int) -> None:
        """Note which shared leases are over; called with each tick, before zones are visited."""
        lapsed: list[int] = []
        for shared in self._by_grants.values():
            shared.note(now_ms)
            if shared.lapsed_ms:
                lapsed.append(shared.lapsed_ms)
        self.lapsed_ms = min(lapsed, default=0)
