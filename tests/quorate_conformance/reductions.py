"""What a zone of one partition owes to a case about nodes that come back without memory.

A real master leads it.  The reference holds switch.reduce and switch.append beside the assignments
and has to clear them; here both follow from the row and the registry, so nothing can be left
behind.  What is compared is the order of the configurations: `stable` is the row's voters,
`pending` those after the migration under way.  Ours departs in three things:

- A rebalance without a change is nothing to do.  What the reference lets wait for it comes at once.
- A destination that loses its memory while its copy is made is noticed: the copy is begun again.
  The reference finishes it, removes the voter that is empty, and makes the copy then.
- Several voters are reduced in one step, but their copies are made one after the other.

Of append only nodes that came back empty are compared: of a free place it is not known whether it
is that of such a node.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from quorate.facts.partition_row import PartitionRow, is_quorum, quorum
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.planning.steps.intent import Intent, intent_of
from quorate.protocol.metastore import ShardKey
from quorate_conformance import intents
from quorate_conformance.case_files import Case
from quorate_lone_master.world import LoneMaster

GOES_ROUND = {
    "stale_reduce_seed_variant": "a key left behind starts a round that nobody needs",
    "stale_append_in_published_code": "a key left behind starts a round that nobody needs",
}

PROSE = "facts in words: the cases show them"

QUIET_MS = 5_000
"""So long nothing may happen that must not."""

Step = dict[str, Any]


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "volatile_start_guard":
        return _guard if case.facts["has_data"] else _whole_restart
    if case.section in ("update_pending_keys", "pending_queue_cases"):
        return intents.judge_of(case)
    if case.section == "facts":
        return PROSE
    if case.section != "cases":
        return f"there is no judge for the section {case.section!r}"
    if case.name == "two_nodes_restart_batched":
        return _batched
    return GOES_ROUND.get(case.name, _trace)


class OnePartition:
    """A master and its agents; a migration goes on only when it is let."""

    def __init__(self, nodes: list[str]) -> None:
        self._zone = ZoneRecord("uid", "zone", 1, len(nodes), storage=StorageKind.IN_MEMORY)
        self._world = LoneMaster(self._zone, nodes=tuple(nodes))
        self._world.fills = self._goes_on
        self._let = ""  # the migration that may go on
        self._known = list(nodes)
        self._stores: dict[str, int] = {}
        self.emptied: str | None = None
        """The destination that lost its memory while the present copy was made on it."""

    @property
    def row(self) -> PartitionRow:
        """The partition's row."""
        return self._world.rows(self._zone)[0]

    @property
    def stable(self) -> set[str]:
        """Those who vote."""
        return set(self.row.voter_nodes)

    @property
    def pending(self) -> set[str] | None:
        """Those who vote after the migration under way, if it changes that."""
        active = self.row.active
        after = {voter.node for voter in active.voters} if active is not None else self.stable
        return None if after == self.stable else after

    @property
    def intent(self) -> Intent:
        """What is intended with the partition."""
        zone = self._world.master.zones[self._zone.uid]
        assert zone.target is not None
        return intent_of(self.row, zone.target[0], zone.nodes.dead_voters(self.row))

    @property
    def restarted(self) -> set[str]:
        """Those who came back empty."""
        return set(self._stores)

    def _goes_on(self, zone: str, partition: int, node: str) -> bool:
        """Whether a quorum of the voters still has its memory, and the migration is let."""
        row, nodes = self.row, self._world.master.zones[zone].nodes
        dead = nodes.dead_voters(row)
        living = [voter.node for voter in row.voters if voter.node not in dead]
        is_let = row.active is not None and row.active.migration_id == self._let
        return is_let and is_quorum(row, living, dead)

    def wants(self, nodes: list[str]) -> None:
        """The copies are to be on these nodes: new ones join, the others drain."""
        world = self._world
        new = [node for node in nodes if node not in self._known]
        self._known += new
        world.connect(*new)
        for node in self._known:
            world.master.drain(node, node not in nodes, world.now)
        if len(nodes) != self._zone.replicas:
            self._zone = msgspec.structs.replace(self._zone, replicas=len(nodes))
            world.master.set_zone(self._zone, world.now)
        world.write()

    def restart_together(self, nodes: list[str]) -> None:
        """They come back without memory before the next row is written."""
        self._world.refused = lambda key: isinstance(key, ShardKey)
        for node in nodes:
            self.restart(node)
        self._world.refused = lambda key: False

    def restart(self, node: str) -> None:
        """The node comes back without memory."""
        destination = self.row.destination
        if destination is not None and destination.node == node:
            self.emptied = node
        self._stores[node] = self._stores.get(node, 0) + 1
        self._world.kill(node)
        self._world.connect(node, store=f"store-{node}-{self._stores[node]}")

    def comes_to(self, stable: set[str], pending: set[str] | None) -> None:
        """Time passes until the row is so, and it stays so."""
        self._world.wait(lambda: (self.stable, self.pending) == (stable, pending))
        self.stays()

    def stays(self) -> None:
        """Time passes, and the configuration stays as it is."""
        before = self.stable, self.pending
        self._world.pass_time(QUIET_MS)
        assert (self.stable, self.pending) == before

    def let(self) -> None:
        """What is under way may be committed, but nothing after it."""
        assert self.row.active is not None
        self._let = self.row.active.migration_id

    def applied(self) -> None:
        """What is under way is committed."""
        after = self.pending
        self.let()
        self._world.wait(lambda: self.stable == after)


def _trace(case: Case) -> None:
    partition = OnePartition(case.facts["initial_calculated"])
    steps: Iterator[Step] = iter(case.facts["steps"])
    for step in steps:
        event, keys = step["event"], step.get("keys")
        if event.startswith("volatile restart"):
            partition.restart(step["node"])
        elif event == "raft configuration applied":
            partition.applied()
            if partition.emptied is not None:
                _reduces_and_appends(partition.emptied, step, next(steps), last := next(steps))
                partition.emptied, keys = None, last["keys"]
        elif event == "ordinary rebalance starts" and set(step["nodes"]) == partition.stable:
            _catch_up_with(partition, steps)
            continue
        elif event.startswith(("calculated", "data nodes changed", "ordinary rebalance")):
            partition.wants(step["nodes"])
        elif event.startswith("configuration"):
            partition.let()
            partition.stays()
        else:
            raise AssertionError(f"unknown event {event!r}")
        if keys is not None:
            _is_as_told(partition, keys)


def _batched(case: Case) -> None:
    """Several restart; they are reduced together, and re-added one after the other."""
    partition = OnePartition(case.facts["initial_calculated"])
    both, reduced, whole = (step["keys"] for step in case.facts["steps"])
    partition.restart_together(both["reduce"])
    _is_as_told(partition, both)
    partition.applied()
    assert partition.stable == set(reduced["stable"])
    for node in reduced["append"]:
        waiting = {*reduced["append"]} - partition.stable
        assert waiting == {*partition.intent.append}
        partition.comes_to(partition.stable, partition.stable | {node})
        partition.applied()
    _is_as_told(partition, whole)


def _reduces_and_appends(node: str, *steps: Step) -> None:
    """The reference finishes the copy, removes the node and has it again."""
    stable = [set(step["keys"]["stable"]) for step in steps]
    assert stable == [stable[0], stable[0] - {node}, stable[0]]


def _catch_up_with(partition: OnePartition, steps: Iterator[Step]) -> None:
    """The reference rebalances without a change; what came meanwhile is looked at after it."""
    waiting: list[Step] = []
    for step in steps:
        if step["event"] == "raft configuration applied":
            for each in waiting:
                if "node" in each:
                    partition.restart(each["node"])
            for each in waiting:
                if "nodes" in each:
                    partition.wants(each["nodes"])
            _is_as_told(partition, step["keys"])
            return
        waiting.append(step)
    raise AssertionError("the rebalance without a change has no end")


def _is_as_told(partition: OnePartition, keys: Step) -> None:
    pending, planned = keys["pending"], keys["planned"]
    partition.comes_to(set(keys["stable"]), set(pending) if pending is not None else None)
    intent = partition.intent
    if set(keys["stable"]) != set(pending or ()):  # else the reference rebalances without a change
        assert intents.of_nodes(intent.planned) == intents.of_nodes(planned)
    # A key that names no voter was left behind.  An emptied destination is no voter yet.
    left_behind = {n for n in keys["reduce"] or () if n not in keys["stable"]}
    assert {*intent.reduce} == {*(keys["reduce"] or ())} - left_behind
    assert {*intent.append} & partition.restarted == {*(keys["append"] or ())}


def _guard(case: Case) -> None:
    """Who may go on without the one that came back empty.  Where the reference asks for a majority
    always, two copies may lose one here: every majority of two had the other."""
    facts = case.facts
    present, dead = len(facts["has_data"]), len(facts["empty"])
    goes_on = present > 0 and present >= quorum(facts["peers"], dead)

    assert goes_on == (facts["decision"].startswith("reduce") or facts["peers"] == 2)


def _whole_restart(case: Case) -> None:
    """All are without data.  The group starts as at first, once all are surely empty."""
    facts = case.facts
    nodes = [*facts["empty"], *facts["unknown"]]
    zone = ZoneRecord("uid", "zone", 1, len(nodes), storage=StorageKind.IN_MEMORY, start_empty=True)
    world = LoneMaster(zone, nodes=tuple(nodes))
    before = world.rows(zone)[0]
    world.kill(*nodes)
    world.connect(*facts["empty"])
    world.pass_time(QUIET_MS)

    starts = facts["decision"].startswith("full restart")
    row = world.rows(zone)[0]
    assert (row.voters != before.voters) == starts
    assert bool(world.status(zone).available) == starts
