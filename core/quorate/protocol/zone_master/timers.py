"""The timers of one zone, which change its data nodes when agents join and leave.

The rules are in planning/target/data_nodes.py. What timers count from, the ages of joins and
leaves, is stored with the agents' registrations (node_registry.py).
"""

from collections.abc import Sequence

import msgspec

from quorate.facts.time import Now
from quorate.facts.zone import DataNodes
from quorate.planning.target.data_nodes import (
    Member,
    Timer,
    chosen_anew,
    first_data_nodes,
    settle,
)
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import FOREVER_MS
from quorate.protocol.messages.events import Reason
from quorate.protocol.status import TimerStatus
from quorate.protocol.zone_master.zone import Zone

DUE_MOVED_MS = 1_000
"""Clocks differ a little at every look; within this much a timer's end is said to be the same."""


class ZoneTimers:
    """The timers of one zone.

    - `running`: those that ran at the last `settle`, as users see them.
    - `awaited`: the nodes that wait for one that will fire, which is due at `due_ms` (boot clock).
    """

    def __init__(self, cluster: Cluster, zone: Zone) -> None:
        self.running: tuple[TimerStatus, ...] = ()
        self.awaited: frozenset[str] = frozenset()
        self.due_ms = FOREVER_MS
        self._cluster = cluster
        self._zone = zone
        self._placed_ms = -(1 << 40)
        known = zone.record.data_nodes
        if known is not None:  # the node that changed the topology last may be registered no longer
            cluster.revision = max(cluster.revision, known.revision)

    def first(self, now: Now) -> DataNodes:
        """Return the data nodes of a zone that has none yet."""
        record = self._zone.record
        return first_data_nodes(self._members(now, None), record.filter, record.storage_profile)

    def placing(self, now: Now) -> None:
        """Choose the data nodes of a zone that is being placed: all agents that are there now."""
        self._placed_ms = now.boot_ms
        self._zone.record = msgspec.structs.replace(self._zone.record, data_nodes=self.first(now))

    def stop(self) -> None:
        """Forget what runs: the zone is being deleted."""
        self.running, self.awaited, self.due_ms = (), frozenset(), FOREVER_MS

    def settle(self, now: Now) -> None:
        """Let the timers fire that are due: the zone's record gets its data nodes of now."""
        record = self._zone.record
        known = record.data_nodes
        if known is None:  # rows of an earlier version, or rebuilt from agents
            known = self.first(now)
        wanted = (record.filter, record.storage_profile)
        members, chosen = self._members(now, known), known
        if (known.filter, known.storage_profile) != wanted:
            chosen = chosen_anew(known, members, *wanted)
        # Agents of a new cluster may register while the first of them are given its first zone.
        is_new = now.boot_ms - self._placed_ms < self._cluster.settings.failure_detection_ms
        up_ms = 0 if is_new else record.scale_up_ms
        nodes, timers = settle(chosen, members, up_ms, record.scale_down_ms)
        running = [timer for timer in timers if timer.is_set]
        self.awaited = frozenset(node for timer in running for node in timer.nodes)
        self.due_ms = min([now.boot_ms + t.left_ms for t in running], default=FOREVER_MS)
        self.running = tuple(self._shown(timer, now) for timer in timers)
        if nodes != record.data_nodes:
            self._zone.change(data_nodes=nodes)
            self._report(known.nodes, nodes.nodes)

    def _report(self, before: Sequence[str], nodes: Sequence[str]) -> None:
        added = [node for node in nodes if node not in before]
        removed = [node for node in before if node not in nodes]
        changes = [f"added {', '.join(added)}"] if added else []
        changes += [f"removed {', '.join(removed)}"] if removed else []
        if changes:
            about = f"{'; '.join(changes)}: data nodes are now {', '.join(nodes) or 'none'}"
            self._cluster.event(self._zone.record.uid, None, Reason.DATA_NODES_CHANGED, about)

    def _members(self, now: Now, known: DataNodes | None) -> list[Member]:
        agents = self._cluster.agents
        all_in = known is not None and agents.keys() <= {*known.nodes}
        # Of data nodes it does not matter.
        voters = set() if all_in else {voter.node for voter in self._zone.parts.voters()}
        return [
            Member(
                name,
                not agent.has_left,
                name in voters,
                agent.since.aged(now),
                self._zone.fitting.fits(agent.record, self._zone.record),
            )
            for name, agent in agents.items()
            if agent.record is not None and agent.since is not None and not agent.removing
        ]

    def _shown(self, timer: Timer, now: Now) -> TimerStatus:
        """Return the timer as users see it."""
        due_ms = now.wall_ms + timer.left_ms if timer.is_set else None
        return shown_timer(self.running, TimerStatus(timer.kind, timer.nodes, due_ms))


def shown_timer(before: Sequence[TimerStatus], timer: TimerStatus) -> TimerStatus:
    """Return the timer as it was shown `before`, while it ends at the same time; else itself."""
    for shown in before:
        is_same = (shown.kind, shown.nodes) == (timer.kind, timer.nodes)
        if not is_same or (shown.due_ms is None) != (timer.due_ms is None):
            continue
        if timer.due_ms is None or abs(timer.due_ms - (shown.due_ms or 0)) < DUE_MOVED_MS:
            return shown
    return timer
