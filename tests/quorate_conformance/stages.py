"""What the planner `Staged` owes to a planner case: the reference's stages, in its order.

Its migrations, however, must not lose a copy where the reference does: they are judged like those
of any planner, by `plans`.
"""

from collections.abc import Sequence
from typing import Any

from quorate.planning.steps.stage_migrations import (
    PlannedStage,
    Row,
    StageKind,
    stage_migrations,
    staged_row,
    with_copies_first,
    without_cycles,
)
from quorate_conformance.case_files import Case


def stages_are_as_told(case: Case) -> None:
    """All stages where the case gives them all, in order; else those its tests name."""
    facts = case.facts
    current, target = facts["current"], facts["target"]
    found = [told(stage) for stage in _transfers(current, target)]
    gives_up = list(without_cycles(current, target)) != [
        *target,
        *[None] * (len(current) - len(target)),
    ]
    assert gives_up == _reference_gives_up(facts)
    for field in ("stages", "derived_full_plan"):
        if field in facts:
            assert found == _told_in(facts[field])
    asserted = _told_in(facts.get("asserted_stages", facts.get("asserted_decisions", [])))
    assert [stage for stage in asserted if stage not in found] == []
    if facts.get("order_asserted"):
        assert [stage for stage in found if stage in asserted] == asserted
    if "reference_sequence" in facts:
        sequence = _told_in(facts["reference_sequence"])
        assert found == [stage for stage in sequence if not stage.startswith(StageKind.CLEAR)]
    copies = facts.get("copies_in_reference", facts.get("copies"))
    if copies is not None:
        assert _copies_by_stage(current, target) == copies


def copies_come_first(case: Case) -> None:
    """COPY and SHIFT_UP pass what they may pass, in the order the case gives."""
    facts = case.facts
    given = _told_in(facts["stages"] if "stages" in facts else facts["input"])
    expected = facts["expected_order"]
    if "input" in facts:
        number = {entry["id"]: at for at, entry in enumerate(facts["input"])}
        expected = [given[number[name]] for name in expected]

    assert [told(stage) for stage in with_copies_first([_read(line) for line in given])] == expected


def reference_counts(rows: Sequence[tuple[Row, Row]]) -> dict[str, int]:
    """How the reference fares over rows and their targets, counted as the case files count."""
    counts = dict.fromkeys(
        ("transfers", "cyclic_dropped", "dips_with_clear_first", "dips_clear_last"), 0
    )
    for current, target in rows:
        goal = without_cycles(current, target)
        counts["cyclic_dropped"] += goal != tuple(target)
        transfers = _transfers(current, target)
        clears = _clears(current, target)
        counts["transfers"] += len(transfers)
        floor = min(_count(current), _count(goal))
        for field, stages in (
            ("dips_with_clear_first", [*clears, *transfers]),
            ("dips_clear_last", [*transfers, *clears]),
        ):
            after = _rows_after(current, stages)
            assert after[-1] == goal
            counts[field] += min(_count(row) for row in after) < floor
    return counts


def told(stage: PlannedStage) -> str:
    """`MOVE A 0>- D ->0`: the kind, then who goes from which index to which."""
    ways = [
        (stage.source, stage.source_from, stage.source_to),
        (stage.destination, stage.destination_from, stage.destination_to),
    ]
    words: list[str] = [stage.kind]
    for node, leaves, comes in ways:
        if node is not None:
            words += [node, f"{_index(leaves)}>{_index(comes)}"]
    return " ".join(words)


def _index(index: int | None) -> str:
    return "-" if index is None or index < 0 else str(index)


def _told_in(entries: Sequence[Any]) -> list[str]:
    """Lines as they are; objects with a field for each part as lines."""
    lines: list[str] = []
    for entry in entries:
        if isinstance(entry, str):
            lines.append(entry)
            continue
        words = [entry["type"].removesuffix("_REPLACING")]
        for role in ("source", "destination"):
            if entry[role] is not None:
                leaves, comes = (entry[f"{role}{when}ReplicaIndex"] for when in ("Current", "New"))
                words += [entry[role], f"{_index(leaves)}>{_index(comes)}"]
        lines.append(" ".join(words))
    return lines


def _read(line: str) -> PlannedStage:
    kind, *words = line.split()
    ways: list[tuple[str, int | None, int | None]] = []
    for node, way in zip(words[::2], words[1::2], strict=True):
        leaves, comes = (None if part == "-" else int(part) for part in way.split(">"))
        ways.append((node, leaves, comes))
    if len(ways) == 1:
        return PlannedStage(StageKind(kind), None, None, None, *ways[0])
    return PlannedStage(StageKind(kind), *ways[0], *ways[1])


def _reference_gives_up(facts: dict[str, Any]) -> bool:
    for field in ("cyclic", "expected_cyclic"):
        if field in facts:
            return bool(facts[field])
    return bool(facts.get("reference_gives_up", False))


def _transfers(current: Row, target: Row) -> list[PlannedStage]:
    stages = with_copies_first(stage_migrations(current, target))
    return [stage for stage in stages if stage.kind != StageKind.CLEAR]


def _clears(current: Row, target: Row) -> list[PlannedStage]:
    stages = stage_migrations(current, target)
    return [stage for stage in stages if stage.kind == StageKind.CLEAR]


def _copies_by_stage(current: Row, target: Row) -> list[int]:
    """Copies before and after each stage, in places that nobody is left in before any other."""
    stages = [*_clears(current, target), *_transfers(current, target)]
    return [_count(row) for row in _rows_after(current, stages)]


def _rows_after(current: Row, stages: Sequence[PlannedStage]) -> list[tuple[str | None, ...]]:
    rows = [tuple(current)]
    for stage in stages:
        rows.append(staged_row(rows[-1], stage))
    return rows


def _count(row: Row) -> int:
    return sum(node is not None for node in row)
