"""Until when primaries serve, counted once for all that the same agents grant.

Heartbeats never end, and an agent at rest may be primary of thousands of partitions.  Roles whose
voters and promises are the same share one `ServingUntil` while nothing is under way in their zones.
Each answer to a heartbeat recounts these instead of every role.  Other zones count each of their
roles (`Replicas.renew_leases`), because promises and voters may change there at any moment.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

FOREVER = 1 << 62
"""A primary's own lease."""


class ServingUntil:
    """The boot time, in ms, until which the leases of a quorum of the voters run."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms


class Grants(NamedTuple):
    """What a role's lease depends on, beside the leases themselves: the other voters, which of them
    have promised its term, whether it votes itself, and the place of the quorum in rising order."""

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
    """Those of one agent.  `first_end_ms`: when the first of them ends (boot ms)."""

    def __init__(self, held_until: Mapping[str, int]) -> None:
        """`held_until`: by node, until when its lease runs; `recount` follows each change."""
        self._held_until = held_until
        self._by_grants: dict[Grants, ServingUntil] = {}
        self.first_end_ms = FOREVER

    def share(self, grants: Grants) -> ServingUntil:
        """Return what all roles with these grants share from now on."""
        shared = self._by_grants.get(grants)
        if shared is None:
            shared = ServingUntil(lease_end(*grants, self._held_until))
            self._by_grants[grants] = shared
            self.first_end_ms = min(self.first_end_ms, shared.ms)
        return shared

    def recount(self) -> None:
        """Leases changed."""
        self.first_end_ms = FOREVER
        for grants, shared in self._by_grants.items():
            shared.ms = lease_end(*grants, self._held_until)
            self.first_end_ms = min(self.first_end_ms, shared.ms)

    def forget(self) -> None:
        """Share nothing any more: every zone at rest is woken, and counts its own roles."""
        self._by_grants.clear()
        self.first_end_ms = FOREVER
