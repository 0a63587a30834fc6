"""Judges resets by a person, and what is pending and planned while voters are away.

A real master leads one partition; the other nodes of a case join when the case first names them.
Ours departs in these:

- A reset narrows to one voter; the other copies are made one after the other.  So what the
  reference has pending from a reset is where the partition is led, and a copy that is being made
  is no voter yet.
- A reset frees no place: one that is away is replaced when the scale-down timer has fired for it.
- Which copies a reset made is no flag: a forced pending is the row of the reset itself.
- The chain ends when the partition has all its copies, not at the change of voters after that.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import NEVER_MS, ConsistencyMode, ZoneRecord
from quorate.planning.steps.intent import intent_of
from quorate.protocol.recovery import Recovery, RecoveryAction
from quorate.protocol.zone_master.view.availability import Availability, availability
from quorate_conformance.case_files import Case
from quorate_lone_master.world import LoneMaster, placed_master

SETTLED_MS = 5_000
"""Longer than a loss takes to be noticed and answered."""
SCALE_DOWN_MS = 1_000
"""Where a case does not say it."""


def judge_of(case: Case) -> Callable[[Case], None] | None:
    """The judge of a story told here; None: it is none of these."""
    if case.name == "manual_reset_only_named_partition":
        return _only_the_named_partition
    return _judge if case.name in _STORIES else None


def _judge(case: Case) -> None:
    story = _Story(case)
    for step in case.facts["steps"]:
        story.take(step)


class _Story:
    """One partition; its voters at first are those that the case expects first."""

    def __init__(self, case: Case) -> None:
        facts = case.facts
        first = facts["steps"][0]
        self._zone = ZoneRecord(
            "uid",
            "zone",
            1,
            facts["zone"]["replicas"],
            mode=ConsistencyMode(facts["zone"]["mode"]),
            reset_ms=NEVER_MS,
            scale_down_ms=SCALE_DOWN_MS,
        )
        self._known: list[str] = first["expect"]["stable"]
        self._world = placed_master(self._zone, nodes=tuple(self._known))
        self._held: set[str] = set()  # copies on these get on no further
        self._world.fills = lambda zone, partition, node: node not in self._held
        self._reset_term = 0

    @property
    def _row(self) -> PartitionRow:
        return self._world.rows(self._zone)[0]

    def take(self, step: dict[str, Any]) -> None:
        """Do one step, and check what it expects."""
        expected = step.get("expect", {})
        self._join(expected)
        self._hold(expected)
        self._world.same_processes = True
        self._world.kill(*step.get("stop", ()))
        self._world.connect(*step.get("start", ()))
        self._world.same_processes = False
        self._world.pass_time(SETTLED_MS)
        if "alter" in step:
            seconds = int(step["alter"].removeprefix("AUTO SCALE DOWN "))
            self._zone = msgspec.structs.replace(self._zone, scale_down_ms=seconds * 1000)
            self._world.master.set_zone(self._zone, self._world.now)
            self._world.pass_time(seconds * 1000 + SETTLED_MS)
        if step.get("manual_reset"):
            before = {*self._row.voter_nodes}
            assert reset(self._world, self._zone, 0) == ()
            assert self._row.reset is not None
            assert {voter.node for voter in self._row.reset.links[-1].voters} == before
            self._reset_term = self._row.term
            self._world.pass_time(SETTLED_MS)
        for word, value in expected.items():
            _EXPECTED[word](self, value)

    def _join(self, expected: dict[str, Any]) -> None:
        """Nodes that are expected to have copies, and are not known yet, are started."""
        named = [expected.get(word) for word in ("stable", "next", "pending", "planned")]
        lists = [each["nodes"] if isinstance(each, dict) else each for each in named]
        new = [node for nodes in lists for node in nodes or () if node not in self._known]
        self._known = [*self._known, *dict.fromkeys(new)]
        self._world.connect(*dict.fromkeys(new))

    def _hold(self, expected: dict[str, Any]) -> None:
        """Look at the pending, planned or running step before it is done."""
        if "stable" in expected and "pending" not in expected:
            self._held = set()
        for word in ("pending", "planned"):
            self._held |= {*expected.get(word, {"nodes": ()})["nodes"]}
        unfilled = {word.removeprefix("local_") for word in expected if word.startswith("local_")}
        self._held = unfilled or self._held

    # --- what is expected ------------------------------------------------------------------------

    def stable_is(self, nodes: Sequence[str]) -> None:
        """These vote; if nothing is held, the partition comes to that."""
        self._world.wait(lambda: {*self._row.voter_nodes} == {*nodes})

    def state_is(self, state: str) -> None:
        """Where the reference counts a copy that is being made, the voters alone count here."""
        zone = self._world.master.zones[self._zone.uid]
        found = availability(zone.parts[0], self._zone.replicas, zone.nodes)
        here = [n for n in self._row.voter_nodes if zone.nodes.holder(n) is not None]
        if 2 * len(here) > len(self._row.voters):
            assert found == state
        else:
            assert found is Availability.READ_ONLY

    def pending_is(self, pending: dict[str, Any]) -> None:
        """The row of a reset, or the way to these nodes."""
        if pending.get("force"):
            assert (self._row.voter_nodes, self._row.term) == ((*pending["nodes"],), self._forced)
        else:
            assert self._leads_to == {*pending["nodes"]}
        if not pending.get("force", True):
            assert self._row.reset is None

    def planned_is(self, planned: dict[str, Any]) -> None:
        """The way to these nodes; those that the reset left are kept while that is under way."""
        assert self._leads_to == {*planned["nodes"]}
        assert self._row.left_by_reset

    def leads_to(self, nodes: Sequence[str]) -> None:
        """The way to these nodes."""
        assert self._leads_to == {*nodes}

    def runs_on(self, nodes: Sequence[str]) -> None:
        """The nodes that the row names: those that vote, and the destination."""
        destination = self._row.destination
        assert destination is not None
        assert {*self._row.voter_nodes, destination.node} == {*nodes}

    def is_still(self, flags: str) -> None:
        """Nothing is pending or planned."""
        assert (self._row.active, self._row.left_by_reset) == (None, ())

    def is_filled_from(self, node: str) -> None:
        """The reset's survivor, whose data all others got."""
        row = self._row
        assert row.primary is not None
        assert (row.primary.node, row.term) == (node, self._reset_term)

    def is_filling(self, state: str) -> None:
        """The newcomer that is held is the destination of what is under way."""
        destination = self._row.destination
        assert destination is not None
        assert {destination.node} == self._held

    def chain_is(self, chain: Sequence[Sequence[str]]) -> None:
        """The last link votes, and no link is before it: the partition has all its copies."""
        self._world.wait(lambda: {*self._row.voter_nodes} == {*chain[-1]})
        self._world.wait(lambda: self._row.reset is None or not self._row.reset.links)

    @property
    def _forced(self) -> int:
        assert self._row.reset is not None
        return self._row.reset.term

    @property
    def _leads_to(self) -> set[str]:
        zone = self._world.master.zones[self._zone.uid]
        assert zone.target is not None
        intent = intent_of(self._row, zone.target[0], zone.nodes.dead_voters(self._row))
        ends = intent.planned or intent.pending or intent.stable
        return {*ends, *intent.append}


_EXPECTED: dict[str, Callable[[_Story, Any], None]] = {
    "stable": _Story.stable_is,
    "state": _Story.state_is,
    "pending": _Story.pending_is,
    "planned": _Story.planned_is,
    "next": _Story.leads_to,
    "replicas_running_on": _Story.runs_on,
    "flags": _Story.is_still,
    "data_from": _Story.is_filled_from,
    "local_n3": _Story.is_filling,
    "chain": _Story.chain_is,
}
_STORIES = {
    "manual_reset_restores_replicas",
    "old_peer_starts_when_pending_not_forced",
    "planned_of_reset_overwritten_by_scale_down",
    "pending_copy_is_source_when_all_stable_lost",
    "chain_collapses_on_graceful",
}


def reset(world: LoneMaster, zone: ZoneRecord, *partitions: int) -> tuple[str, ...]:
    """A person resets these partitions as they are now; what refuses it."""
    versions = {partition: world.rows(zone)[partition].version for partition in partitions}
    asked = Recovery(RecoveryAction.RESET, versions, dry_run=False)
    refusals = world.master.recover(zone.uid, asked, world.now).refusals
    world.write()
    return refusals


def _only_the_named_partition(case: Case) -> None:
    """Two partitions of four nodes share two, as in the case: these are stopped."""
    placed, stopped, named = case.facts["steps"]
    wanted = [{*placed["expect"][f"stable_p{partition}"]} for partition in (0, 1)]
    nodes = tuple(sorted(wanted[0] | wanted[1]))
    zone = ZoneRecord("uid", "zone", 2, case.facts["zone"]["replicas"])
    world = placed_master(zone, nodes=nodes)
    shared = {*world.rows(zone)[0].voter_nodes} & {*world.rows(zone)[1].voter_nodes}
    assert len(shared) == len(wanted[0] & wanted[1]) == len(stopped["stop"])
    world.kill(*shared)
    world.pass_time(SETTLED_MS)
    assert not any(part.serves for part in world.master.zones[zone.uid].parts.values())

    assert reset(world, zone, *named["manual_reset"]) == ()
    world.pass_time(SETTLED_MS)

    for partition, part in world.master.zones[zone.uid].parts.items():
        assert part.serves == named["expect"][f"p{partition}_writes_ok"]
