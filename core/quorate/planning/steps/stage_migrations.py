"""Find the stages by which Hazelcast's planner takes one row to its target, lowest index first.

Source: Hazelcast's design note on avoiding data loss in migrations, section 3.2. `plan_migrations`
looks for the fewest copies; this looks at one replica index after the other. "Colder" means a
higher replica index.

    the target has no owner there       CLEAR
    the row has no owner there          SHIFT_UP of a colder owner, else COPY to a newcomer
    a newcomer for a leaver             MOVE
    a newcomer for an owner that gets   SHIFT_DOWN if its colder index is free, else MOVE
        colder
    an owner of a colder index          whatever frees that owner is done first, at the end of the
                                        chain of owners that wait for each other

A chain that ends where it began cannot be carried out without losing a copy on the way: those
owners stay where they are. At the end, COPY and SHIFT_UP, which add copies, are put before MOVE and
SHIFT_DOWN if they do not touch the same nodes.

Here a displaced node loses its copy even if the target wants it back. `plan_staged` carries the
stages out without that.
"""

import enum
from collections.abc import Sequence

import msgspec

from quorate.facts.errors import InvariantError

Row = Sequence[str | None]


class StageKind(enum.StrEnum):
    """One stage of a migration. A SHIFT_UP with a source takes the place of that node."""

    CLEAR = "CLEAR"
    COPY = "COPY"
    MOVE = "MOVE"
    SHIFT_UP = "SHIFT_UP"
    SHIFT_DOWN = "SHIFT_DOWN"


class PlannedStage(msgspec.Struct, frozen=True):
    """One stage: `source` and `destination` each go from one index to another (None: none)."""

    kind: StageKind
    source: str | None = None
    source_from: int | None = None
    source_to: int | None = None
    destination: str | None = None
    destination_from: int | None = None
    destination_to: int | None = None

    @property
    def adds_a_copy(self) -> bool:
        """Whether it displaces no owner."""
        return self.source is None


def stage_migrations(current: Row, target: Row) -> tuple[PlannedStage, ...]:
    """Return the stages from `current` to `target` without its cycles, in the order found.

    Both rows have None for a free place. InvariantError if a node is twice in one of them.
    """
    for row in (current, target):
        names = [node for node in row if node is not None]
        if len(dict.fromkeys(names)) != len(names):
            raise InvariantError(f"a node is twice in {list(row)}")
    return _Stages(current, without_cycles(current, target)).found


def without_cycles(current: Row, target: Row) -> tuple[str | None, ...]:
    """Return the target in which owners that would change places in a cycle keep theirs."""
    wanted = _widened(target, current)
    for start in range(len(current)):
        circle: list[int] = []
        at: int | None = start
        while at is not None and at not in circle and at < len(current):
            if wanted[at] is None or current[at] in (None, wanted[at]):
                break
            circle.append(at)
            at = _index(wanted, current[at])
        if circle and at == start:
            for place in circle:
                wanted[place] = current[place]
    return tuple(wanted)


def with_copies_first(stages: Sequence[PlannedStage]) -> tuple[PlannedStage, ...]:
    """Return the stages with each COPY and SHIFT_UP before the MOVE and SHIFT_DOWN it may pass.

    It passes no stage that contains its node, and a SHIFT_DOWN only into an index colder than its
    own.
    """
    order: list[PlannedStage] = []
    for stage in stages:
        at = len(order)
        while stage.adds_a_copy and at and _may_pass(stage, order[at - 1]):
            at -= 1
        order.insert(at, stage)
    return tuple(order)


def _may_pass(stage: PlannedStage, other: PlannedStage) -> bool:
    if other.adds_a_copy or stage.destination in (other.source, other.destination):
        return False
    return other.source_to is None or _at(stage) < other.source_to


def _at(stage: PlannedStage) -> int:
    assert stage.destination_to is not None
    return stage.destination_to


def staged_row(row: Row, stage: PlannedStage) -> tuple[str | None, ...]:
    """Return the row after one stage."""
    highest = max(stage.source_to or 0, stage.destination_to or 0)
    after = [*row, *[None] * (highest + 1 - len(row))]
    for node, leaves, _ in _ways(stage):
        if leaves is not None and after[leaves] == node:
            after[leaves] = None
    for node, _, comes in _ways(stage):
        if comes is not None:
            after[comes] = node
    return tuple(after)


def _ways(stage: PlannedStage) -> tuple[tuple[str | None, int | None, int | None], ...]:
    return (
        (stage.source, stage.source_from, stage.source_to),
        (stage.destination, stage.destination_from, stage.destination_to),
    )


class _Stages:
    """The stages `found` so far, and the row they lead to."""

    __slots__ = ("_row", "_target", "found")

    def __init__(self, current: Row, target: Row) -> None:
        self._target = _widened(target, current)
        self._row = _widened(current, target)
        stages: list[PlannedStage] = []
        for at in range(len(self._row)):
            while self._row[at] != self._target[at]:
                stage = self._next(at)
                stages.append(stage)
                self._row = list(staged_row(self._row, stage))
        self.found = tuple(stages)

    def _next(self, at: int) -> PlannedStage:
        """Return the stage that brings index `at` nearer to its target."""
        present, wanted = self._row[at], self._target[at]
        if wanted is None:
            return PlannedStage(StageKind.CLEAR, present, at)
        colder = _index(self._row, wanted)
        if present is None and colder is not None:
            return self._shift_up(colder, at)
        if present is None:
            return PlannedStage(StageKind.COPY, destination=wanted, destination_to=at)
        if colder is not None:
            return self._freeing(at, colder)
        down = self._free_place_of(present)
        if down is not None:
            return PlannedStage(StageKind.SHIFT_DOWN, present, at, down, wanted, None, at)
        return self._move(at)

    def _freeing(self, at: int, colder: int) -> PlannedStage:
        """Follow the chain of owners that wait for each other, to one that can move."""
        while True:
            if self._target[colder] is None:
                return self._shift_up(colder, at)
            further = _index(self._row, self._target[colder])
            if further is None:
                return self._move(colder)
            at, colder = colder, further

    def _shift_up(self, colder: int, at: int) -> PlannedStage:
        """Move the owner of `colder` to `at`, and the owner there to its own place, if free."""
        mover, replaced = self._row[colder], self._row[at]
        if replaced is None:
            return PlannedStage(StageKind.SHIFT_UP, None, None, None, mover, colder, at)
        down = self._free_place_of(replaced)
        return PlannedStage(StageKind.SHIFT_UP, replaced, at, down, mover, colder, at)

    def _free_place_of(self, node: str) -> int | None:
        """Return the index where the target wants `node`, if no owner is there; else None."""
        place = _index(self._target, node)
        return place if place is not None and self._row[place] is None else None

    def _move(self, at: int) -> PlannedStage:
        return PlannedStage(StageKind.MOVE, self._row[at], at, None, self._target[at], None, at)


def _widened(row: Row, other: Row) -> list[str | None]:
    return [*row, *[None] * (len(other) - len(row))]


def _index(row: Row, node: str | None) -> int | None:
    return row.index(node) if node is not None and node in row else None
