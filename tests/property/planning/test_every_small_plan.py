"""Every row of up to five places to every target: safe at each step, and no copy without need."""

from collections.abc import Iterator
from itertools import product

import pytest

from quorate.planning.plan_migrations import check_plan, is_reached, plan_migrations

Row = tuple[str | None, ...]
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


def examined(row: Row, voters: tuple[str, ...], target: Row, lost: tuple[str, ...]) -> int:
    """Check the plan, and every plan made anew after one of its steps; the copies it makes."""
    steps = plan_migrations(row, voters, target, lost)
    check_plan(row, voters, target, steps, lost)
    copies = sorted(step.newcomer for step in steps if step.newcomer)
    for number, step in enumerate(steps, 1):
        again = plan_migrations(step.replicas, step.voters, target, lost)
        check_plan(step.replicas, step.voters, target, again, lost)
        made = sorted(s.newcomer for s in (*steps[:number], *again) if s.newcomer)
        assert made == copies, (row, target, step)
        assert len(again) <= len(steps) - number, (row, target, step)
    if not lost:
        end = steps[-1] if steps else None
        assert is_reached(end.replicas if end else row, end.voters if end else voters, target)
    return len(copies)


@pytest.mark.parametrize("places", [1, 2, 3, 4, 5])
def test_every_plan_is_safe_shortest_and_can_be_interrupted_anywhere(places: int) -> None:
    for row, voters in rows(places, with_offline=False):
        for target in targets(places, voters):
            copies = examined(row, voters, target, ())

            assert copies == sum(node is not None and node not in voters for node in target)


@pytest.mark.parametrize("places", [2, 3, 4])
def test_so_is_every_plan_of_a_row_with_offline_voters(places: int) -> None:
    for row, voters in rows(places, with_offline=True):
        lost = tuple(node for node in voters if node in OFFLINE)
        if lost:
            for target in targets(places, voters):
                examined(row, voters, target, lost)
