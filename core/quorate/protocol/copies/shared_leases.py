"""Lease ends of primaries, computed once for all roles that the same agents grant.

Heartbeats never end, and an agent at rest may be primary of thousands of partitions.  Roles with
the same voters and promises share one `ServingUntil` while nothing is in progress in their zones.
Each answer to a heartbeat recomputes these instead of every role.  In other zones each role has its
own (`Replicas.renew_leases`), because promises and voters may change there at any moment.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

FOREVER = 1 << 62
"""The end of the lease that a primary grants itself."""


class ServingUntil:
    """The boot time, in ms, until which the leases of a quorum of the voters run."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms


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
    """The shared leases of one agent.  `first_end_ms`: when the first of them ends (boot ms)."""

    def __init__(self, held_until: Mapping[str, int]) -> None:
        """`held_until`: node -> until when its lease runs.  Each change is followed by
        `recount`."""
        self._held_until = held_until
        self._by_grants: dict[Grants, ServingUntil] = {}
        self.first_end_ms = FOREVER

    def share(self, grants: Grants) -> ServingUntil:
        """Return the lease end that all roles with these grants share from now on."""
        shared = self._by_grants.get(grants)
        if shared is None:
            shared = ServingUntil(lease_end(*grants, self._held_until))
            self._by_grants[grants] = shared
            self.first_end_ms = min(self.first_end_ms, shared.ms)
        return shared

    def recount(self) -> None:
        """Recompute the shared lease ends, because a lease has changed."""
        self.first_end_ms = FOREVER
        for grants, shared in self._by_grants.items():
            shared.ms = lease_end(*grants, self._held_until)
            self.first_end_ms = min(self.first_end_ms, shared.ms)

    def forget(self) -> None:
        """Drop all shared leases.

        The caller wakes every zone, and each computes the leases of its own roles.
        """
        self._by_grants.clear()
        self.first_end_ms = FOREVER
