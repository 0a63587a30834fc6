"""Which keys count as agreeing, unsettled or differing."""

import pytest

from quorate_spark.comparing.compare_rows import (
    Again,
    Baseline,
    Candidate,
    KeyState,
    PartitionTally,
    RowSeen,
    compare_key,
    digest,
    judge_again,
)

V, W = digest(b"v"), digest(b"w")
BASELINE = Baseline(0, ("A", "B", "C"), settled_upto=10)


def row(
    node: str, counter: int, value: bytes | None = V, term: int = 3, expires: int = 0
) -> RowSeen:
    return RowSeen(node, counter, term, expires, value)


def test_the_same_settled_row_on_every_copy_agrees() -> None:
    judged = compare_key([row("A", 7), row("B", 7), row("C", 7)], BASELINE)

    assert judged.state is KeyState.AGREE


def test_a_row_exactly_at_the_lowest_lwm_is_settled() -> None:
    assert compare_key([row("A", 10), row("B", 9)], BASELINE).state is KeyState.DIFFER
    assert compare_key([row("A", 11), row("B", 9)], BASELINE).state is KeyState.UNSETTLED


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([row("A", 7), row("B", 7)], ("missing",)),
        ([row("A", 7), row("B", 7), row("C", 5)], ("counter",)),
        ([row("A", 7), row("B", 7), row("C", 7, term=4)], ("term",)),
        ([row("A", 7), row("B", 7), row("C", 7, expires=99)], ("expires_at",)),
        ([row("A", 7), row("B", 7, W), row("C", 7)], ("value",)),
        ([row("A", 7), row("B", 7), row("C", 7, None)], ("tombstone",)),
        ([row("A", 7), row("B", 7), row("C", 7), row("C", 7)], ("repeated",)),
        ([row("A", 9, None), row("B", 5), row("C", 9, None)], ("tombstone", "counter")),
        ([row("A", 9, None), row("B", 5)], ("missing", "tombstone", "counter")),
        ([row("A", 9, None), row("B", 7, None)], ("counter",)),
    ],
)
def test_what_differs_in_a_settled_row_is_named(rows: list[RowSeen], what: tuple[str, ...]) -> None:
    assert compare_key(rows, BASELINE) == (
        KeyState.DIFFER,
        (rows[0].counter, 3 + ("term" in what)),
        what,
    )


def test_a_purged_tombstone_equals_its_absence() -> None:
    assert compare_key([row("A", 7, None)], BASELINE).state is KeyState.AGREE
    assert compare_key([row("A", 7, None), row("C", 7, None)], BASELINE).state is KeyState.AGREE
    assert compare_key([], BASELINE).state is KeyState.AGREE


def test_a_key_overwritten_above_the_lowest_lwm_is_unsettled_whatever_else_differs() -> None:
    judged = compare_key([row("A", 12), row("B", 7, W)], BASELINE)

    assert judged == (KeyState.UNSETTLED, (12, 3), ())


def test_a_difference_is_confirmed_only_by_the_same_winning_row() -> None:
    candidate = Candidate(0, b"k", (7, 3))
    later = Baseline(0, ("A", "B"), settled_upto=20)

    def again(*rows: RowSeen) -> tuple[Again, tuple[str, ...]]:
        return judge_again(candidate, rows, later)

    assert again(row("A", 7), row("B", 7, W)) == (Again.CONFIRMED, ("value",))
    assert again(row("A", 7), row("B", 7)) == (Again.GONE, ())
    assert again() == (Again.GONE, ())
    assert again(row("A", 25), row("B", 7)) == (Again.GONE, ())
    assert again(row("A", 15), row("B", 7)) == (Again.OTHER, ())


def test_a_counter_that_was_never_given_out_is_confirmed_as_such() -> None:
    later = Baseline(0, ("A", "B"), settled_upto=20)

    found = judge_again(Candidate(0, b"k", (99, 3)), [row("A", 99), row("B", 7)], later)

    assert found == (Again.CONFIRMED, ("hwm",))


def test_tallies_of_disjoint_keys_add_up() -> None:
    left, right = PartitionTally(BASELINE), PartitionTally(BASELINE)
    left.count(b"a", [row("A", 1), row("B", 1), row("C", 1)], 2)
    left.count(b"b", [row("A", 12)], 2)
    left.count(b"c", [row("A", 2)], 2)
    right.count(b"d", [row("A", 30)], 2)
    right.count(b"e", [row("A", 3)], 2)
    right.count(b"f", [row("A", 4)], 2)

    left.add(right, 2)

    assert (left.settled, left.unsettled, left.differing) == (1, 2, 3)
    assert [candidate.key for candidate in left.candidates] == [b"c", b"e"]
    assert left.highest == Candidate(0, b"d", (30, 3))
