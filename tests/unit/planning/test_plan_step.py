"""The next change of a row, made again and again, leads to where the planner says."""

from itertools import permutations

import pytest

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import Planner
from quorate.planning.queue.keep_migrations import still_serves
from quorate.planning.steps.plan_migrations import PlannedMigration
from quorate.planning.steps.plan_staged import reachable_target
from quorate.planning.steps.plan_step import plan_step

Row = tuple[str | None, ...]
ROW = ("A", "B", "C")
TARGETS = list(permutations("ABCDE", 3))


def with_step(row: Row, voters: tuple[str, ...], step: PlannedMigration) -> PartitionRow:
    destination = None if step.destination is None else Holder(step.destination, "", 1)
    after = tuple(Voter(node, "") for node in step.voters)
    migration = Migration("m", step.kind, step.source, destination, step.replicas, after)
    before = tuple(Voter(node, "") for node in voters)
    return PartitionRow(0, 1, 1, None, row, before, migration)


def walk(target: tuple[str, ...], planner: Planner) -> tuple[Row, int]:
    """The last row, and how many nodes were copied to."""
    row: Row = ROW
    voters: tuple[str, ...] = ROW
    copied = 0
    for _ in range(12):
        step = plan_step(row, voters, target, (), (), 3, planner)
        if step is None:
            return row, copied
        goal = target if planner is Planner.MINIMAL else reachable_target(row, voters, target)
        assert still_serves(with_step(row, voters, step), goal), "else it would be given up at once"
        row, voters = step.replicas, step.voters
        copied += step.newcomer is not None
        assert len([node for node in row if node is not None]) >= 3
    raise AssertionError(f"{target}: no end in sight at {row}")


@pytest.mark.parametrize("target", TARGETS, ids="".join)
def test_minimal_arrives_at_the_target(target: tuple[str, ...]) -> None:
    assert walk(target, Planner.MINIMAL) == (target, len(set(target) - set(ROW)))


@pytest.mark.parametrize("target", TARGETS, ids="".join)
def test_staged_arrives_where_it_says_and_copies_no_more(target: tuple[str, ...]) -> None:
    end, copied = walk(target, Planner.STAGED)

    assert end == reachable_target(ROW, ROW, target)
    assert copied == len(set(target) - set(ROW))
    assert sorted(str(node) for node in end) == sorted(target)


def test_the_planners_differ_where_owners_would_change_places_in_a_circle() -> None:
    assert walk(("B", "A", "C"), Planner.MINIMAL)[0] == ("B", "A", "C")
    assert walk(("B", "A", "C"), Planner.STAGED)[0] == ROW


@pytest.mark.parametrize(
    ("replicas", "dead", "left"),
    [
        (("A", "B", "C", None, None), "DE", "ABC"),
        (("A", None, "B", None, "C"), "DE", "ABC"),
        (("A", "B", None, None), "CD", "AB"),
        (("A", "B", "C", "D"), "BD", "AC"),
    ],
)
def test_all_voters_whose_stores_are_gone_leave_in_one_step(
    replicas: Row, dead: str, left: str
) -> None:
    voters = "ABCDE"[: len(replicas)]

    step = plan_step(replicas, voters, tuple(voters), [*dead], [*dead], len(voters))

    assert step is not None
    assert (step.kind, step.leaver, step.newcomer) == (MigrationKind.DROP, dead[0], None)
    assert (step.replicas, step.voters) == (tuple(left), tuple(left))


def test_the_copies_of_those_that_left_are_made_before_the_next_dead_voter_leaves() -> None:
    step = plan_step(("A", "B", None), "ABC", tuple("ABCDE"), ["C"], ["C"], 5)

    assert step is not None
    assert (step.newcomer, step.leaver) == ("D", None)


def test_a_voter_that_is_given_up_and_just_back_is_not_dropped() -> None:
    row = ("A", "B", "C", "D", "E")

    step = plan_step(row, row, row[:3], ["E"], [], 5, given_up=["D", "E"])

    assert step is not None
    assert (step.kind, step.voters) == (MigrationKind.DROP, ("A", "B", "C", "D"))
