"""Every row of up to five places to every target: safe at each step, and no copy without need.

Every row means: every pattern of owners and gaps (and offline voters) behind a primary.  The
planners compare names for equality and do nothing else with them, so that a row's owners may as
well be called A, B, C in their order: renaming all nodes renames the plan.  For the same reason
newcomers are interchangeable, and a target has them in one order.  Nothing else is left out: a
target has every choice of owners, offline voters, newcomers and gaps behind its own primary.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product

import pytest

from quorate.facts.partition_row import MigrationKind
from quorate.planning.steps.plan_migrations import (
    PlannedMigration,
    check_plan,
    is_reached,
    plan_migrations,
)
from quorate.planning.steps.plan_staged import plan_staged, reachable_target

Row = tuple[str | None, ...]
Planner = Callable[..., tuple[PlannedMigration, ...]]
OLD, NEW, OFFLINE = "ABCDE", "VWXYZ", "PQRST"


def rows(places: int, with_offline: bool) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Rows with a primary and any pattern of owners, gaps and offline voters; their voters."""
    kinds = "o-x" if with_offline else "o-"
    for pattern in product(kinds, repeat=places - 1):
        row: list[str | None] = []
        voters: list[str] = []
        for at, kind in enumerate(("o", *pattern)):
            row.append(OLD[at] if kind == "o" else None)
            if kind != "-":
                voters.append(OLD[at] if kind == "o" else OFFLINE[at])
        yield tuple(row), tuple(voters)


def targets(places: int, known: tuple[str, ...], chosen: Row = ()) -> Iterator[Row]:
    """Every choice of voters, newcomers and gaps; newcomers are alike, so they come in order."""
    if len(chosen) == places:
        yield chosen
        return
    newcomers = sum(node is not None and node in NEW for node in chosen)
    gap = [None] if chosen else []
    for node in (*gap, *(n for n in known if n not in chosen), NEW[newcomers]):
        yield from targets(places, known, (*chosen, node))


def owning(row: Row) -> int:
    return sum(node is not None for node in row)


def copied(steps: tuple[PlannedMigration, ...]) -> list[str]:
    return sorted(step.newcomer for step in steps if step.newcomer is not None)


def examined(
    planner: Planner, row: Row, voters: tuple[str, ...], target: Row, lost: tuple[str, ...] = ()
) -> int:
    """Check the plan, and every plan made anew after one of its steps; the copies it makes."""
    reachable = target
    if planner is plan_staged:
        reachable = reachable_target(row, voters, target, lost)
    steps = planner(row, voters, target, lost)
    check_plan(row, voters, reachable, steps, lost)
    floor = min(owning(row), owning(target))
    copies = copied(steps)
    for number, step in enumerate(steps, 1):
        assert owning(step.replicas) >= floor, (row, target, step)
        if step.kind == MigrationKind.DROP:
            assert not copied(steps[number:]), "leavers go last"
        again = planner(step.replicas, step.voters, target, lost)
        check_plan(step.replicas, step.voters, reachable, again, lost)
        assert sorted([*copied(steps[:number]), *copied(again)]) == copies, (row, target, step)
        assert len(again) <= len(steps) - number, (row, target, step)
    if not lost:
        end = steps[-1] if steps else None
        assert is_reached(end.replicas if end else row, end.voters if end else voters, reachable)
    return len(copies)


@pytest.mark.parametrize("planner", [plan_migrations, plan_staged])
@pytest.mark.parametrize("places", [1, 2, 3, 4, 5])
def test_every_plan_is_safe_shortest_and_can_be_interrupted_anywhere(
    planner: Planner, places: int
) -> None:
    for row, voters in rows(places, with_offline=False):
        for target in targets(places, voters):
            copies = examined(planner, row, voters, target)

            assert copies == sum(node is not None and node not in voters for node in target)


@pytest.mark.parametrize("planner", [plan_migrations, plan_staged])
@pytest.mark.parametrize("places", [2, 3, 4])
def test_so_is_every_plan_of_a_row_with_offline_voters(planner: Planner, places: int) -> None:
    _examine_rows_with_offline_voters(planner, places)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("planner", [plan_migrations, plan_staged])
def test_so_is_every_plan_of_five_places_with_offline_voters(planner: Planner) -> None:
    """132,912 rows with their targets; not in the quick run, which it would double."""
    _examine_rows_with_offline_voters(planner, 5)


def _examine_rows_with_offline_voters(planner: Planner, places: int) -> None:
    for row, voters in rows(places, with_offline=True):
        lost = tuple(node for node in voters if node in OFFLINE)
        if lost:
            for target in targets(places, voters):
                examined(planner, row, voters, target, lost)


@pytest.mark.parametrize("planner", [plan_migrations, plan_staged])
def test_other_names_give_the_same_plan_with_other_names(planner: Planner) -> None:
    """What the rows left out above rely on."""
    other = dict(zip(OLD + NEW, "ZYXWVEDCBA", strict=True))

    def renamed(row: Iterable[str | None]) -> Row:
        return tuple(None if node is None else other[node] for node in row)

    for row, voters in rows(4, with_offline=False):
        for target in targets(4, voters):
            steps = planner(row, voters, target)
            names = [node for node in renamed(voters) if node is not None]
            again = planner(renamed(row), names, renamed(target))
            assert [step.replicas for step in again] == [renamed(s.replicas) for s in steps]
            assert [step.kind for step in again] == [step.kind for step in steps]
