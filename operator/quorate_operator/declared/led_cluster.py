"""One StorageCluster that is led: its runner, and what of it was seen to change.

`look` observes the whole cluster once; every zone's status comes from that one observation.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from quorate.protocol.status import NodeStatus
from quorate.protocol.status import ZoneStatus as Observed
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.mastership.decisions import Decisions
from quorate_operator.mastership.refused_writes import Refusal
from quorate_operator.mastership.runner import STARTING, Runner

UNTOLD_MAX = 1000


class Change(NamedTuple):
    """Changes since the last look.  `zones`: uids of zones whose status has changed."""

    cluster: bool
    zones: list[str]
    all_zones: bool
    """Something that the status of every zone depends on has changed."""


class LedCluster:
    """One StorageCluster with its runner."""

    def __init__(self, cluster: StorageCluster, runner: Runner, decisions: Decisions) -> None:
        self.cluster = cluster
        self.runner = runner
        self.decisions = decisions
        self.pause = ""
        """Why its spec is not looked at; empty while it is."""
        self.addresses = cluster.status.addresses or cluster.spec.addresses
        """The addresses that are dialed; at first those of an earlier master, for one that is
        paused."""
        self.told: dict[str, Any] | None = None
        self.untold: deque[dict[str, Any]] = deque(maxlen=UNTOLD_MAX)
        """Events that are still to be created; the oldest go first when the API server is away."""
        self.nodes: tuple[NodeStatus, ...] = ()
        """As of the last look, like `problem` and what `zone` answers."""
        self.problem = STARTING
        self.refusal: Refusal | None = None
        self._zones: dict[str, Observed] = {}
        self._unreached: dict[str, str] = {}
        self._places: object = None
        self.since_s = 0.0
        """When it began to be led here, by the loop's clock."""
        self.has_seen_zones = False
        """Whether the watch has shown all Zones that there are."""
        self.is_seen = False
        """Whether a look has shown more than that it is about to be led."""

    def zone(self, uid: str) -> Observed | None:
        """The zone as of the last look; None while it is not led."""
        return self._zones.get(uid)

    def look(self) -> Change:
        """Observe everything once."""
        status, problem, unreached = (
            self.runner.status(),
            self.runner.problem,
            self.runner.unreached(),
        )
        zones = {zone.uid: zone for zone in status.zones}
        changed = [uid for uid, zone in zones.items() if self._is_other(uid, zone)]
        changed += [uid for uid in self._zones if uid not in zones]
        refusal = self.runner.refusal()
        places = (problem, refusal, [(node.name, node.address) for node in status.nodes])
        change = Change(
            (status.nodes, problem, unreached, refusal)
            != (self.nodes, self.problem, self._unreached, self.refusal),
            changed,
            places != self._places,
        )
        self.nodes, self.problem, self._unreached = status.nodes, problem, unreached
        self._zones, self._places, self.refusal = zones, places, refusal
        self.is_seen = problem != STARTING
        return change

    def _is_other(self, uid: str, zone: Observed) -> bool:
        known = self._zones.get(uid)
        return known is not zone and known != zone
