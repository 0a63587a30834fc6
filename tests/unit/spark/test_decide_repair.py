"""The row that a key gets, by strategy: what the conformance cases do not have."""

from itertools import permutations

import pytest

from quorate.facts.keyspace import RESERVED
from quorate_spark.repairing.decide import Action, Decision, Strategy, decide
from quorate_spark.verdict import CopyRow, KeyDifference

WRITTEN = (Strategy.LWW, Strategy.PRIMARY, Strategy.RELATIVE_MAJORITY, Strategy.REMOVE)


def row(node: str, index: int, value: str, counter: int = 5, term: int = 2) -> CopyRow:
    return CopyRow(node, index, True, counter, term, 0, False, len(value), value)


def deleted(node: str, index: int, counter: int = 7) -> CopyRow:
    return CopyRow(node, index, True, counter, 2, tombstone=True)


def missing(node: str, index: int) -> CopyRow:
    return CopyRow(node, index, present=False)


def decided(
    strategy: Strategy, *copies: CopyRow, key: bytes = b"k", what: tuple[str, ...] = ("value",)
) -> Decision:
    """The decision, which is the same in whatever order the copies were read."""
    decisions = {
        decide(KeyDifference(3, "k", key.hex(), what, order), strategy)
        for order in permutations(copies)
    }
    (decision,) = decisions
    return decision


def test_the_latest_term_wins_over_a_higher_counter_of_an_earlier_one() -> None:
    """The earlier term's update was cut off: its counter was given out again."""
    decision = decided(
        Strategy.LWW, row("a", 0, "x", 9, 2), row("b", 1, "y", 8, 3), row("c", 2, "y", 8, 3)
    )

    assert decision.action is Action.WRITE
    assert (decision.row, decision.right) == (row("b", 1, "y", 8, 3), ("b", "c"))
    assert decision.reason == "counter 8 of term 3 is the latest version"


def test_different_rows_with_the_same_latest_version_have_no_latest_one() -> None:
    decision = decided(Strategy.LWW, row("a", 0, "x"), row("b", 1, "y"), row("c", 2, "z", 4))

    assert decision.action is Action.IRREPARABLE
    assert decision.reason == (
        "a, b have different rows with the same version, counter 5 of term 2"
    )


def test_the_latest_version_may_be_a_deletion() -> None:
    decision = decided(Strategy.LWW, row("a", 0, "x"), deleted("b", 1), row("c", 2, "x"))

    assert (decision.action, decision.row, decision.right) == (Action.REMOVE, None, ("b",))


def test_a_counter_that_was_never_given_out_is_not_the_latest_version() -> None:
    copies = row("a", 0, "x", 900), row("b", 1, "y"), row("c", 2, "y")

    assert decided(Strategy.LWW, *copies, what=("hwm",)).action is Action.IRREPARABLE
    assert decided(Strategy.RELATIVE_MAJORITY, *copies, what=("hwm",)).right == ("b", "c")


def test_a_purged_tombstone_counts_with_the_tombstones() -> None:
    copies = deleted("a", 0), missing("b", 1), row("c", 2, "x")

    decision = decided(Strategy.RELATIVE_MAJORITY, *copies)

    assert (decision.action, decision.right) == (Action.REMOVE, ("a", "b"))
    assert decided(Strategy.PRIMARY, *copies).action is Action.REMOVE
    assert "no row on b" in decided(Strategy.LWW, *copies).reason


@pytest.mark.parametrize("strategy", [Strategy.RELATIVE_MAJORITY, Strategy.PRIMARY])
def test_of_two_rows_on_one_copy_each_only_the_place_of_one_decides(strategy: Strategy) -> None:
    decision = decided(strategy, row("a", 1, "x"), row("b", 0, "y"))

    if strategy is Strategy.PRIMARY:
        assert (decision.row, decision.right) == (row("b", 0, "y"), ("b",))
    else:
        assert decision.action is Action.IRREPARABLE
        assert decision.reason == "2 different rows are on 1 of 2 copies"


def test_without_the_primarys_copy_its_row_is_not_guessed() -> None:
    decision = decided(Strategy.PRIMARY, row("a", 1, "x"), row("b", 2, "y"))

    assert (decision.action, decision.reason) == (
        Action.IRREPARABLE,
        "no copy is the primary's",
    )


@pytest.mark.parametrize("strategy", WRITTEN)
def test_internal_rows_are_left_to_their_transactions(strategy: Strategy) -> None:
    copies = row("a", 0, "x"), row("b", 1, "y"), row("c", 2, "y")

    assert decided(strategy, *copies, key=RESERVED + b"t").action is Action.IRREPARABLE


def test_equal_values_of_different_expiry_are_different_rows() -> None:
    lasting, expiring = row("a", 0, "x"), CopyRow("b", 1, True, 5, 2, 99, False, 1, "x")

    assert decided(Strategy.LWW, lasting, expiring).action is Action.IRREPARABLE
