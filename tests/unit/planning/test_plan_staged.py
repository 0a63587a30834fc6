"""The migrations of the planner `Staged`: its stages, and no copy lost between them."""

import pytest

from quorate.planning.steps.plan_migrations import PlannedMigration, check_plan
from quorate.planning.steps.plan_staged import plan_staged, reachable_target

Row = tuple[str | None, ...]


def row(text: str) -> Row:
    """`A - C` as ("A", None, "C")."""
    return tuple(None if word == "-" else word for word in text.split())


def plan(
    replicas: str, target: str, voters: str | None = None, lost: str = ""
) -> tuple[PlannedMigration, ...]:
    """The plan, checked; voters are the owners unless said."""
    names = (voters or replicas.replace("-", "")).split()
    steps = plan_staged(row(replicas), names, row(target), lost.split())
    goal = reachable_target(row(replicas), names, row(target), lost.split())
    check_plan(row(replicas), names, goal, steps, lost.split())
    return steps


def told(steps: tuple[PlannedMigration, ...]) -> list[str]:
    """Each step as `KIND: row after it`."""
    return [f"{s.kind}: " + " ".join(node or "-" for node in s.replicas) for s in steps]


@pytest.mark.parametrize(
    ("replicas", "target", "expected"),
    [
        ("A B C", "D B C", ["MOVE: D B C"]),
        ("A - C", "A D C", ["COPY: A D C"]),
        ("A - C", "D A C", ["SHIFT_DOWN: D A C"]),
        ("A - B C", "A B C -", ["SHIFT_UP: A B - C", "SHIFT_UP: A B C -"]),
        # D and C keep their copies behind the row until it is their turn.
        (
            "A B C D",
            "A C D E",
            ["SHIFT_DOWN: A B C E D", "SHIFT_UP: A B D E C", "SHIFT_UP: A C D E B"],
        ),
        ("A B C D", "B D C -", ["SHIFT_UP: A D C - B", "SWAP: B D C - A", "DROP: B D C -"]),
    ],
)
def test_worked_examples(replicas: str, target: str, expected: list[str]) -> None:
    steps = told(plan(replicas, target))

    assert steps[: len(expected)] == expected
    assert {step.split(":")[0] for step in steps[len(expected) :]} <= {"DROP"}


def test_where_the_reference_clears_a_copy_first_it_is_dropped_last() -> None:
    assert told(plan("A - B", "A C")) == ["COPY: A C B", "DROP: A C"]


def test_where_the_reference_copies_a_node_again_only_its_place_changes() -> None:
    steps = plan("A F - D - I", "I F D A")

    assert [step.newcomer for step in steps] == [None] * len(steps)
    assert steps[-1].replicas[:4] == ("I", "F", "D", "A")


def test_a_circle_is_given_up_and_said_so() -> None:
    assert plan("A B C", "C A B") == ()
    assert reachable_target(row("A B C"), "ABC", row("B A D")) == ("A", "B", "D")


def test_a_newcomer_takes_the_vote_of_an_offline_leaver() -> None:
    steps = plan("A - C", "A D C", voters="A B C", lost="B")

    assert told(steps) == ["MOVE: A D C"]
    assert steps[0].voters == ("A", "D", "C")


def test_an_offline_voter_of_the_target_is_waited_for() -> None:
    assert plan("A - C", "A B C", voters="A B C", lost="B") == ()


def test_a_row_never_has_more_than_eight_voters() -> None:
    steps = plan("A B C D E F G", "V A W C X E Y")

    assert max(len(step.voters) for step in steps) == 8
    assert [step.newcomer for step in steps if step.newcomer] == ["V", "W", "X", "Y"]


def test_a_row_that_is_as_wanted_needs_nothing() -> None:
    assert plan("A B C", "A B C") == ()


def test_without_a_primary_nothing_is_planned() -> None:
    assert plan("- B C", "B C D", voters="A B C") == ()
