"""The stages of Hazelcast's planner: the worked examples of its design note, with its letters."""

import pytest

from quorate.facts.errors import InvariantError
from quorate.planning.steps.stage_migrations import (
    PlannedStage,
    StageKind,
    stage_migrations,
    staged_row,
    with_copies_first,
    without_cycles,
)

Row = tuple[str | None, ...]


def row(text: str) -> Row:
    """`A - C` as ("A", None, "C")."""
    return tuple(None if word == "-" else word for word in text.split())


def told(stages: tuple[PlannedStage, ...]) -> list[str]:
    """Each stage as `KIND source>destination index`: the index that gets a new owner."""
    return [
        f"{stage.kind} {stage.source or '-'}>{stage.destination or '-'} "
        f"{stage.source_from if stage.destination_to is None else stage.destination_to}"
        for stage in stages
    ]


def staged(current: str, target: str) -> list[str]:
    stages = stage_migrations(row(current), row(target))
    reached = row(current)
    for stage in stages:
        reached = staged_row(reached, stage)
    assert reached == without_cycles(row(current), row(target))
    return told(with_copies_first(stages))


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        ("A B C", "D B C", ["MOVE A>D 0"]),
        ("A - C", "A D C", ["COPY ->D 1"]),
        ("A - C", "D A C", ["SHIFT_DOWN A>D 0"]),
        ("A - B C", "A B C -", ["SHIFT_UP ->B 1", "SHIFT_UP ->C 2"]),
        ("A B C D", "A C D E", ["MOVE D>E 3", "MOVE C>D 2", "MOVE B>C 1"]),
        ("A B C D", "B D C -", ["SHIFT_UP B>D 1", "MOVE A>B 0"]),
    ],
)
def test_the_worked_examples(current: str, target: str, expected: list[str]) -> None:
    assert staged(current, target) == expected


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        ("A - C", "D A C", ["SHIFT_DOWN A>D 0"]),
        ("A B C", "D A C", ["MOVE A>D 0", "MOVE B>A 1"]),
        ("A - C D", "A C - D", ["SHIFT_UP ->C 1"]),
        ("A B C", "A C D", ["MOVE C>D 2", "MOVE B>C 1"]),
    ],
)
def test_the_figures_of_shift_down_and_shift_up(
    current: str, target: str, expected: list[str]
) -> None:
    assert staged(current, target) == expected


def test_the_figure_of_a_circle_leaves_all_three_where_they_are() -> None:
    assert staged("A B C", "C A B") == []
    assert without_cycles(row("A B C"), row("C A B")) == row("A B C")


def test_what_is_beside_a_circle_is_carried_out_all_the_same() -> None:
    assert staged("A B C", "B A D") == ["MOVE C>D 2"]


def test_a_chain_that_ends_at_a_newcomer_is_no_circle() -> None:
    assert staged("A B", "B C") == ["MOVE B>C 1", "MOVE A>B 0"]


def test_an_owner_that_nobody_replaces_is_cleared() -> None:
    assert staged("A B C", "A B -") == ["CLEAR C>- 2"]


def test_two_owners_change_places_in_one_stage_when_the_colder_place_is_free() -> None:
    assert stage_migrations(row("A - B"), row("B A -")) == (
        PlannedStage(StageKind.SHIFT_UP, "A", 0, 1, "B", 2, 0),
    )


def test_a_copy_passes_moves_of_other_nodes_up_to_the_next_copy() -> None:
    stages = (
        PlannedStage(StageKind.COPY, destination="A", destination_to=0),
        PlannedStage(StageKind.COPY, destination="B", destination_to=1),
        PlannedStage(StageKind.MOVE, "C", 2, None, "D", None, 2),
        PlannedStage(StageKind.MOVE, "E", 3, None, "F", None, 3),
        PlannedStage(StageKind.COPY, destination="G", destination_to=4),
    )

    assert told(with_copies_first(stages)) == [
        "COPY ->A 0",
        "COPY ->B 1",
        "COPY ->G 4",
        "MOVE C>D 2",
        "MOVE E>F 3",
    ]


def test_a_shift_up_passes_a_move_as_a_copy_does() -> None:
    assert staged("A B - C", "A D C -") == ["SHIFT_UP ->C 2", "MOVE B>D 1"]


def test_a_copy_passes_a_shift_down_to_a_colder_index_only() -> None:
    down = PlannedStage(StageKind.SHIFT_DOWN, "A", 0, 2, "B", None, 0)
    hotter = PlannedStage(StageKind.COPY, destination="C", destination_to=1)
    colder = PlannedStage(StageKind.COPY, destination="C", destination_to=3)

    assert with_copies_first((down, hotter)) == (hotter, down)
    assert with_copies_first((down, colder)) == (down, colder)


@pytest.mark.parametrize("other", [("C", "D"), ("D", "C")])
def test_a_copy_does_not_pass_a_move_of_its_own_node(other: tuple[str, str]) -> None:
    move = PlannedStage(StageKind.MOVE, other[0], 1, None, other[1], None, 1)
    copy = PlannedStage(StageKind.COPY, destination="C", destination_to=2)

    assert with_copies_first((move, copy)) == (move, copy)


def test_a_node_twice_in_a_row_is_refused() -> None:
    with pytest.raises(InvariantError, match="twice"):
        stage_migrations(row("A B A"), row("A B"))
