"""The order of one row's migrations; letters as in Hazelcast's design note on migrations."""

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import MigrationKind
from quorate.planning.steps.plan_migrations import (
    PlannedMigration,
    check_plan,
    is_reached,
    plan_migrations,
)

Row = tuple[str | None, ...]


def row(text: str) -> Row:
    """`A - C` as ("A", None, "C")."""
    return tuple(None if word == "-" else word for word in text.split())


def plan(
    replicas: str, target: str, voters: str | None = None, lost: str = ""
) -> tuple[PlannedMigration, ...]:
    """The plan, checked; voters are the owners unless said."""
    names = (voters or replicas.replace("-", "")).split()
    steps = plan_migrations(row(replicas), names, row(target), lost.split())
    check_plan(row(replicas), names, row(target), steps, lost.split())
    return steps


def told(steps: tuple[PlannedMigration, ...]) -> list[str]:
    """Each step as `KIND source>destination: row after it`."""
    return [
        f"{step.kind} {step.source or '-'}>{step.destination or '-'}: "
        + " ".join(node or "-" for node in step.replicas)
        for step in steps
    ]


@pytest.mark.parametrize(
    ("replicas", "target", "expected"),
    [
        ("A B C", "D B C", ["MOVE A>D: D B C"]),
        ("A - C", "A D C", ["COPY ->D: A D C"]),
        ("A - C", "D A C", ["SHIFT_DOWN A>D: D A C"]),
        ("A - B C", "A B C -", ["SHIFT_UP B>-: A B C -"]),
        # The reference copies three times here; only E is new.
        ("A B C D", "A C D E", ["MOVE B>E: A C D E"]),
        ("A B C D", "B D C -", ["SWAP A>B: B D C A", "DROP A>-: B D C -"]),
        # What the reference gives up as cyclic is one change of order.
        ("A B", "B A", ["SWAP A>B: B A"]),
        ("A B C", "C A B", ["SWAP A>C: C A B"]),
        # And here it would lose a copy on the way.
        ("A - B", "A C", ["MOVE B>C: A C"]),
        ("A B - C", "B C A", ["SWAP A>B: B C A"]),
    ],
)
def test_worked_examples(replicas: str, target: str, expected: list[str]) -> None:
    assert told(plan(replicas, target)) == expected


def test_a_row_that_is_as_wanted_needs_nothing() -> None:
    assert plan("A B C", "A B C") == ()
    assert plan("A B", "A B -") == ()


def test_each_newcomer_is_one_step_and_takes_the_new_order_along() -> None:
    steps = plan("A B C", "D E F")

    assert told(steps) == ["MOVE A>D: D B C", "MOVE C>E: D E B", "MOVE B>F: D E F"]
    assert steps[0].voters == ("D", "B", "C")


def test_a_leaving_primary_hands_over_in_a_step_of_its_own() -> None:
    assert told(plan("A B C", "B C D")) == ["SWAP A>B: B C A", "MOVE A>D: B C D"]


def test_a_lost_voter_is_replaced_by_a_move_from_it_before_anything_else() -> None:
    steps = plan("A - C", "C A D", voters="A B C", lost="B")

    assert told(steps) == ["MOVE B>D: A C D", "SWAP A>C: C A D"]
    assert steps[0].voters == ("A", "D", "C")


def test_an_offline_voter_of_the_target_is_waited_for() -> None:
    assert plan("A - C", "A B C", voters="A B C", lost="B") == ()
    assert plan("A - C", "A B C", voters="A B C") == ()


def test_no_copy_is_dropped_while_a_member_of_the_target_is_offline() -> None:
    waiting = plan("A - C D", "A B C", voters="A B C D", lost="B")
    back = plan("A B C D", "A B C", voters="A B C D")

    assert waiting == ()
    assert told(back) == ["DROP D>-: A B C"]


def test_an_offline_voter_that_the_target_does_not_name_leaves_first() -> None:
    steps = plan("A - C D", "A C", voters="A B C D", lost="B")

    assert told(steps) == ["DROP B>-: A C - D", "DROP D>-: A C"]


def test_a_lost_newcomer_is_left_out() -> None:
    assert told(plan("A B", "A D E", lost="D")) == ["MOVE B>E: A - E"]


def test_an_offline_first_choice_of_primary_leaves_the_present_one() -> None:
    assert told(plan("B - C", "A B D", voters="A B C", lost="A")) == ["MOVE C>D: B - D"]


def test_without_a_primary_nothing_is_planned() -> None:
    assert plan("- B C", "B C D", voters="A B C") == ()
    assert plan("-", "D", voters="A", lost="A") == ()


def test_without_a_member_of_the_target_online_nothing_is_planned() -> None:
    assert plan("A - -", "B C", voters="A B C", lost="B C") == ()


def test_a_row_is_reached_when_places_and_voters_are_right() -> None:
    assert is_reached(("A", None, "C"), "ABC", "ABC", lost=["B"])
    assert not is_reached(("A", "C"), "ABC", "AC")
    assert not is_reached(("C", "A"), "AC", "AC")


def step(
    kind: MigrationKind, replicas: str, voters: str, come: str = "", gone: str = ""
) -> PlannedMigration:
    return PlannedMigration(
        kind, gone or None, come or None, come or None, gone or None, row(replicas), tuple(voters)
    )


@pytest.mark.parametrize(
    ("target", "steps", "complaint"),
    [
        ("A D", [step(MigrationKind.DROP, "A", "A", gone="B")], "I-1"),
        ("D E", [step(MigrationKind.MOVE, "D E", "DE", come="D", gone="A")], "I-8"),
        ("A D", [step(MigrationKind.MOVE, "A D", "ABD", come="D", gone="B")], "I-8"),
        ("B A", [step(MigrationKind.SWAP, "B A", "AB")], "I-8"),
        ("A B", [step(MigrationKind.SHIFT_UP, "A B", "AB")], "changes nothing"),
        ("A D", [], "needed"),
        ("B A", [], "ends at"),
        ("A B", [step(MigrationKind.COPY, "A B D", "ABD", come="D")], "needed"),
    ],
)
def test_the_check_refuses_an_unsafe_or_wasteful_plan(
    target: str, steps: list[PlannedMigration], complaint: str
) -> None:
    with pytest.raises(InvariantError, match=complaint):
        check_plan(("A", "B"), "AB", row(target), steps)
