"""The status of one zone, computed only when something it depends on has changed.

A master with hundreds of zones at rest is asked for their status twice a second. Looking at tens of
thousands of partitions each time would cost more than all its decisions.
"""

import msgspec

from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.full_storages import FullStorages
from quorate.protocol.members.membership import ZoneNodes
from quorate.protocol.status import ZoneStatus
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.status import Moved, Parts, roles, zone_status


class ZoneView:
    """The cached status of one zone. The objects that it reads belong to the zone's master."""

    def __init__(
        self,
        parts: Parts,
        nodes: ZoneNodes,
        rebalance: Rebalance,
        moved: Moved,
        full: FullStorages,
    ) -> None:
        self._parts = parts
        self._nodes = nodes
        self._rebalance = rebalance
        self._moved = moved
        self._full = full
        self._known: ZoneStatus | None = None
        self._basis: object = None
        self._roles_of = -1
        self._roles: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def status(self, record: ZoneRecord, sentence: str, ownership: str = "") -> ZoneStatus:
        """Return the zone as users see it; the same object as before while nothing has changed."""
        basis = (
            ownership,
            self._parts.changes,
            self._moved.changes,
            record,
            sentence,
            self._rebalance.target,
            len(self._rebalance.off_target),
            self._rebalance.missing(),
            self._nodes.refusals(),
            self._nodes.holders(),
            self._full.by_node(),
        )
        known = self._known
        # Which partitions are LOST also depends on registrations.
        if known is None or basis != self._basis or known.unavailable:
            fresh = self.observe(record, sentence, ownership)
            self._basis = basis
            self._known = known = known if fresh == known and known is not None else fresh
        return known

    def observe(self, record: ZoneRecord, sentence: str, ownership: str = "") -> ZoneStatus:
        """Return the zone as users see it, after looking at every partition."""
        status = zone_status(
            record, self._parts, self._nodes, self._rebalance, self._moved, sentence
        )
        return msgspec.structs.replace(
            status,
            full=self._full.by_node(),
            placed=record.placed,
            rebuilding=record.recovering,
            ownership=ownership,
        )

    def roles(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of primaries, and of copies, that each node has of this zone."""
        if self._roles_of != self._parts.changes:
            self._roles_of, self._roles = self._parts.changes, roles(self._parts)
        return self._roles
