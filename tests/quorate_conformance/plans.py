"""What a planner's migrations owe to a planner case.

Of `Minimal` not the reference's order: the end state, no more copies than there are new owners,
never fewer copies than before and target both have (I-1), and the same from wherever a plan is
interrupted.  `Staged` owes the same, up to circles, and the reference's stages besides.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Protocol

from quorate.planning.steps.plan_migrations import (
    PlannedMigration,
    check_plan,
    is_reached,
    plan_migrations,
)
from quorate.planning.steps.plan_staged import plan_staged, reachable_target
from quorate_conformance.case_files import Case
from quorate_conformance.stages import copies_come_first, reference_counts, stages_are_as_told

Row = tuple[str | None, ...]


class Planner(Protocol):
    """`plan_migrations` or `plan_staged`."""

    def __call__(
        self, replicas: Row, voters: Sequence[str], target: Row
    ) -> tuple[PlannedMigration, ...]: ...


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "exhaustive_small":
        return _every_small_case
    judges: dict[str, Callable[[Case], None] | str] = {
        "plan": _reaches_the_target,
        "figure": _reaches_the_target,
        "cycle": _reaches_the_target,  # the reference gives such targets up, one SWAP does them
        "derived_counterexample": _reaches_the_target,
        "random_property": _random_changes,
        "prioritize": copies_come_first,
    }
    kind = str(case.facts.get("kind"))
    return judges.get(kind, f"there is no judge for planner cases of the kind {kind!r}")


def _reaches_the_target(case: Case) -> None:
    facts = case.facts
    current, target = tuple(facts["current"]), tuple(facts["target"])
    copies = _examine(current, target)
    stages_are_as_told(case)

    assert copies == facts.get("minimal_new_copies", copies)
    if "new_nodes" in facts:
        assert copies == len(facts["new_nodes"])
    if facts.get("kind") == "derived_counterexample":
        floor = min(_count(current), _count(target))
        assert floor == facts["floor"]


def _random_changes(case: Case) -> None:
    parameters: dict[str, Any] = case.facts["parameters"]
    places = parameters["max_replicas"]
    for seed in range(parameters["rounds"]):
        random = Random(seed)
        for count in parameters["initial_replica_counts"]:
            names = [chr(ord("A") + at) for at in range(places)]
            members = names[: count + random.randint(0, places - count)]
            current = (*names[:count], *[None] * (places - count))
            random.shuffle(members)
            _examine(current, (*members, *[None] * (places - len(members))))


def _every_small_case(case: Case) -> None:
    places = case.facts["replica_slots"]
    rows = [
        (current, target)
        for current in _rows(places)
        for target in _targets(places, [node for node in current if node is not None])
    ]

    assert len(rows) == case.facts["cases"]
    assert sum(_examine(*row) for row in rows) == case.facts["minimum"]
    for field, count in reference_counts(rows).items():
        assert (field, count) == (field, case.facts[field])


def _examine(current: Row, target: Row) -> int:
    """Both planners' plans; the copies, of which neither makes more than the other."""
    voters = [node for node in current if node is not None]
    copies = _examine_plan(plan_migrations, current, target, target)
    reachable = reachable_target(current, voters, target)
    assert _examine_plan(plan_staged, current, target, reachable) == copies
    return copies


def _examine_plan(planner: Planner, current: Row, target: Row, end_target: Row) -> int:
    """Plan, check (end state, I-1, no needless copy), interrupt after every step; the copies."""
    voters: Sequence[str] = [node for node in current if node is not None]
    steps = planner(current, voters, target)
    check_plan(current, voters, end_target, steps)
    end = (steps[-1].replicas, steps[-1].voters) if steps else (current, voters)
    assert is_reached(*end, end_target)
    copies = [step.newcomer for step in steps if step.newcomer is not None]
    assert sorted(copies) == sorted(n for n in target if n is not None and n not in voters)
    floor = min(_count(current), _count(target))
    for number, step in enumerate(steps, 1):
        assert _count(step.replicas) >= floor
        again = planner(step.replicas, step.voters, target)
        check_plan(step.replicas, step.voters, end_target, again)
        made = sum(s.newcomer is not None for s in (*steps[:number], *again))
        assert made == len(copies)
    return len(copies)


def _count(row: Row) -> int:
    return sum(node is not None for node in row)


def _rows(places: int) -> Iterator[Row]:
    """A primary and any pattern of owners and gaps behind it."""
    for pattern in product((True, False), repeat=places - 1):
        names = iter("ABCDEFG")
        yield tuple(next(names) if owns else None for owns in (True, *pattern))


def _targets(places: int, owners: Sequence[str], chosen: Row = ()) -> Iterator[Row]:
    """Contiguous targets of owners and up to two newcomers, which are alike: they come in order."""
    if chosen:
        yield (*chosen, *[None] * (places - len(chosen)))
    if len(chosen) < places:
        for node in (*owners, *[node for node in "YZ" if node not in chosen][:1]):
            if node not in chosen:
                yield from _targets(places, owners, (*chosen, node))
