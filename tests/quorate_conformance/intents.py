"""What becomes of pending and planned when the placement changes, and the way there.

The reference keeps both as keys and writes them with each change of the placement.  Here pending is
the row's active migration and planned follows from row and target.  A real master leads the
partition.  Ours departs in four things:

- A partition always has a row, so `stable` is never empty: it is what the reference has as
  `configured_stable`.
- planned is never written, so it is always the newest; the one before it needs no clearing.
- A pending that leads elsewhere than the newest target waits to its end only when both of its ends
  are even.  Before that it is given up, and the newest target is pending instead.
- There are no learners: each copy votes.  Only what a queue does to peers is compared.
"""

from collections.abc import Callable, Collection

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.planning.steps.intent import Intent, intent_of
from quorate.planning.steps.plan_migrations import plan_migrations
from quorate.protocol.settings import DEFAULTS
from quorate_conformance.case_files import Case
from quorate_lone_master.world import LoneMaster

FORCED = "a forced pending is one row: stories of resets show it"

OTHERS = ("X", "Y")
"""Copies that all assignments have: they differ in one node."""


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "pending_queue_cases":
        return FORCED if "flags" in case.facts else _queue
    return _update


def of_nodes(assignment: Collection[str] | None) -> frozenset[str] | None:
    """The assignment without an order, which the reference's have not."""
    return frozenset(assignment) if assignment is not None else None


def _queue(case: Case) -> None:
    stable, target = _peers(case.facts["stable"]), _peers(case.facts["target"])
    expected: list[set[str]] = []
    for each in case.facts["queue"]:
        peers = set(_peers(each))
        if peers != (expected[-1] if expected else set(stable)):
            expected.append(peers)

    steps = plan_migrations(stable, stable, target)

    assert [set(step.voters) for step in steps] == expected


def _peers(nodes: list[dict[str, str]]) -> tuple[str, ...]:
    return tuple(each["node"] for each in nodes if each["role"] == "peer")


def _update(case: Case) -> None:
    facts = case.facts
    stable = facts["stable"] or facts["configured_stable"]
    calculated, pending = facts["calculated"], facts["pending"]

    # Both ends of a pending are even: what is calculated waits behind it.
    moved = _Placed(stable)
    moved.comes_to(pending, facts["planned"], calculated, is_even=True)
    if pending is not None:
        assert (moved.pending, moved.planned) == (pending, facts["expect_planned"])
    assert moved.stable == stable
    moved.goes_on()
    moved.ends_with(calculated)

    # They are not: what leads elsewhere is given up.
    moved = _Placed(stable)
    moved.comes_to(pending, facts["planned"], calculated, is_even=False)
    assert moved.stable == stable
    moved.has_pending(calculated if calculated != stable else None)
    moved.goes_on()
    moved.ends_with(calculated)


class _Placed:
    """One partition of a real master: two copies stay, the third is on the node of a digit."""

    def __init__(self, stable: str) -> None:
        self._zone = ZoneRecord("uid", "zone", 1, len(OTHERS) + 1)
        self._world = LoneMaster(self._zone, nodes=(*OTHERS, stable))
        self._world.fills = self._gets_on
        self._world.mute = lambda node: self._is_held and self._is_newcomer(node)
        self._known = [stable]
        self._is_even = self._is_held = True
        self._world.pass_time(5_000)

    def comes_to(
        self, pending: str | None, planned: str | None, calculated: str, is_even: bool
    ) -> None:
        """The migration to `pending` begins, then the placement changes to the others in turn."""
        self._is_even = is_even
        if pending is not None:
            self._is_wanted(pending)
            self._world.wait(lambda: self.pending == pending)
            self._world.pass_time(1_000)
        for each in (planned, calculated):
            if each is not None:
                self._is_wanted(each)
                self._world.pass_time(3_000)

    def _is_wanted(self, digit: str) -> None:
        world = self._world
        if digit not in self._known:
            self._known.append(digit)
            world.connect(digit)
        for each in sorted(self._known, key=lambda each: each != digit):  # else too few are left
            world.master.drain(each, each != digit, world.now)
        world.write()

    def has_pending(self, digit: str | None) -> None:
        """It comes to that, after the pause that follows what was given up; nothing is planned."""
        bound_ms = DEFAULTS.migration_stall_ms // 3  # of itself it would be given up after that
        self._world.wait(lambda: (self.pending, self.planned) == (digit, None), bound_ms)

    def goes_on(self) -> None:
        """Nothing is held any more."""
        self._is_even, self._is_held = True, False

    def ends_with(self, digit: str) -> None:
        """The partition comes to rest with its third copy there."""
        self._world.wait(
            lambda: (self.stable, self.pending, self.planned) == (digit, None, None), 120_000
        )

    def _gets_on(self, zone: str, partition: int, node: str) -> bool:
        return self._is_even or not self._is_newcomer(node)

    def _is_newcomer(self, node: str) -> bool:
        destination = self._row.destination
        is_destination = destination is not None and destination.node == node
        return is_destination and node not in self._row.voter_nodes

    @property
    def _row(self) -> PartitionRow:
        return self._world.rows(self._zone)[0]

    @property
    def _intent(self) -> Intent:
        zone = self._world.master.zones[self._zone.uid]
        assert zone.target is not None
        return intent_of(self._row, zone.target[0], zone.nodes.dead_voters(self._row))

    @property
    def stable(self) -> str | None:
        """The digit of the voters."""
        return _digit(self._intent.stable)

    @property
    def pending(self) -> str | None:
        """The digit of the voters to come; None while only roles change."""
        intent = self._intent
        return _changed(intent.pending, intent.stable)

    @property
    def planned(self) -> str | None:
        """The digit of the voters after those."""
        intent = self._intent
        return _changed(intent.planned, intent.pending or intent.stable)


def _changed(nodes: Collection[str] | None, before: Collection[str]) -> str | None:
    return _digit(nodes) if nodes is not None and set(nodes) != set(before) else None


def _digit(nodes: Collection[str]) -> str | None:
    digits = [node for node in nodes if node not in OTHERS]
    return digits[0] if len(digits) == 1 else None
