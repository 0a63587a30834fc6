"""Preview the migrations of a zone for other nodes: every step to the end, nothing is done.

The steps of one partition are in the order in which the master would take them. Partitions do not
wait for each other, so there is no order between them.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from quorate.facts.partition_row import MigrationKind
from quorate.facts.zone import Planner
from quorate.planning.steps.plan_step import plan_step
from quorate.planning.target.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
    placed_voters,
)
from quorate.planning.target.stand_ins import is_drained, with_stand_ins

STEPS_MAX = 32


class PresentRow(msgspec.Struct, frozen=True):
    """A partition at present: owners by replica index, voters, and the bytes of one copy."""

    partition: int
    replicas: tuple[str | None, ...]
    voters: tuple[str, ...]
    bytes: int = 0


class PresentNodes(msgspec.Struct, frozen=True):
    """The nodes at present: those that may own copies, in any order.

    `absent`: those that count as online because they are waited for. `giving_away`: nodes, also
    others, whose copies are to move off them.
    """

    nodes: Sequence[DataNode]
    absent: Collection[str] = ()
    giving_away: Collection[str] = ()


class PreviewStep(msgspec.Struct, frozen=True):
    """One migration that would be made. `owning`: the number of the partition's copies after it."""

    partition: int
    kind: MigrationKind
    source: str | None
    destination: str | None
    copies: bool
    bytes: int
    owning: int


class PreviewStandIn(msgspec.Struct, frozen=True):
    """A copy that `node` gets in the place of `instead_of`, which is away and waited for."""

    partition: int
    node: str
    instead_of: str


class PreviewNode(msgspec.Struct, frozen=True):
    """Copies on one node, before and after."""

    name: str
    copies_before: int
    copies_after: int
    primaries_before: int
    primaries_after: int


class Preview(msgspec.Struct, frozen=True):
    """The whole preview.

    `worst_copies`: the fewest owning copies that any partition has on the way, counting the loss of
    the nodes that are taken away.
    """

    steps: tuple[PreviewStep, ...]
    copies: int
    bytes: int
    worst_copies: int
    nodes: tuple[PreviewNode, ...]
    stand_ins: tuple[PreviewStandIn, ...] = ()


def preview(
    rows: Sequence[PresentRow],
    nodes: Sequence[DataNode],
    without: Sequence[str],
    replicas: int,
    planner: Planner = Planner.MINIMAL,
    absent: Collection[str] = (),
    giving_away: Collection[str] = (),
) -> Preview:
    """Return the steps from `rows` to the target over `nodes`, starting without those in `without`.

    `nodes` may include newcomers, in any order. A node that is not in `nodes`, or is in `without`,
    owns nothing from the start. `absent`: nodes that count as online because they are waited for.
    `giving_away`: nodes whose copies are to move off them, to nodes that are there. ValueError if
    no node is left.
    """
    left = [node for node in nodes if node.name not in without]
    there = {node.name: None for node in left if node.online}
    starts = [
        tuple(node if node is not None and node in there else None for node in row.replicas)
        for row in rows
    ]
    current = [
        placed_voters(start, [v for v in row.voters if v not in without])
        for row, start in zip(rows, starts, strict=True)
    ]
    balanced = distribute_partitions(current, left, replicas)
    leaving = [
        at
        for at, (row, wanted) in enumerate(zip(rows, balanced.assignments, strict=True))
        if is_drained(row.voters, wanted, giving_away.__contains__)
    ]
    chosen = with_stand_ins(balanced, current, leaving, left, absent)
    target = chosen.assignments
    steps: list[PreviewStep] = []
    ends: list[tuple[str | None, ...]] = []
    for row, start, wanted in zip(rows, starts, target, strict=True):
        # A lost primary is replaced at once, before any copy is moved.
        begin = _with_primary(start)
        made, end = _walk(row, begin, wanted, there, replicas, planner)
        steps += made
        ends.append(end)
    owning = [sum(node is not None for node in start) for start in starts]
    return Preview(
        tuple(steps),
        sum(step.copies for step in steps),
        sum(step.bytes for step in steps),
        min([*owning, *(step.owning for step in steps)], default=0),
        _loads([*nodes], [row.replicas for row in rows], ends),
        _stand_ins(rows, balanced, chosen),
    )


def _stand_ins(
    rows: Sequence[PresentRow], balanced: Distribution, chosen: Distribution
) -> tuple[PreviewStandIn, ...]:
    """Return the nodes of `chosen` that are in the places of others of `balanced`."""
    targets = zip(rows, balanced.assignments, chosen.assignments, strict=True)
    return tuple(
        PreviewStandIn(row.partition, node, absent)
        for row, wanted, given in targets
        for absent, node in zip(wanted, given, strict=True)
        if node != absent
    )


def _with_primary(start: tuple[str | None, ...]) -> tuple[str | None, ...]:
    if start and start[0] is None:
        heir = next((node for node in start if node is not None), None)
        if heir is not None:
            after = [heir, *start[1:]]
            after[start.index(heir)] = None
            return tuple(after)
    return start


def _walk(
    row: PresentRow,
    begin: tuple[str | None, ...],
    wanted: Sequence[str],
    there: Mapping[str, None],
    replicas: int,
    planner: Planner,
) -> tuple[list[PreviewStep], tuple[str | None, ...]]:
    steps: list[PreviewStep] = []
    now, voters = begin, row.voters
    lost = [node for node in (*voters, *wanted) if node not in there]
    for _ in range(STEPS_MAX):
        step = plan_step(now, voters, wanted, lost, (), replicas, planner)
        if step is None:
            break
        now, voters = step.replicas, step.voters
        copies = step.newcomer is not None
        owning = sum(node is not None for node in now)
        size = row.bytes if copies else 0
        steps.append(
            PreviewStep(
                row.partition, step.kind, step.source, step.destination, copies, size, owning
            )
        )
    return steps, now


def _loads(
    nodes: Sequence[DataNode],
    before: Sequence[Sequence[str | None]],
    after: Sequence[Sequence[str | None]],
) -> tuple[PreviewNode, ...]:
    names = {node.name: None for node in nodes}
    for row in before:
        names.update({node: None for node in row if node is not None})

    def count(rows: Sequence[Sequence[str | None]], is_primary: bool) -> dict[str, int]:
        found = dict.fromkeys(names, 0)
        for row in rows:
            for node in row[:1] if is_primary else row:
                if node is not None:
                    found[node] += 1
        return found

    copies, copies_after = count(before, False), count(after, False)
    primaries, primaries_after = count(before, True), count(after, True)
    return tuple(
        PreviewNode(name, copies[name], copies_after[name], primaries[name], primaries_after[name])
        for name in sorted(names)
    )
