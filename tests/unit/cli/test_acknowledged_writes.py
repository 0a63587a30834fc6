"""What a client that was promised something may and may not find."""

import pytest

from quorate.facts.keyspace import key_partition
from quorate_cli.demo.acknowledged_writes import KeyHistory, keys_of_all_partitions, percentile


def test_there_is_one_key_in_every_partition() -> None:
    keys = keys_of_all_partitions(64)

    assert [key_partition(key.encode(), 64) for key in keys] == list(range(64))


@pytest.fixture
def history() -> KeyHistory:
    """Five writes were tried; the third was the last to be acknowledged."""
    history = KeyHistory("k")
    history.tried, history.acknowledged = 5, 3
    return history


@pytest.mark.parametrize("number", [3, 4, 5])
def test_the_acknowledged_write_or_a_later_one_may_be_found(
    history: KeyHistory, number: int
) -> None:
    assert history.problem_with(history.value(number), 3) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("k:2", "k has write 2, although write 3 was acknowledged"),
        (None, "k is missing, although write 3 was acknowledged"),
        ("k:6", "k has the value 'k:6', which was never written"),
        ("other:4", "which was never written"),
        ("damaged", "which was never written"),
    ],
)
def test_anything_else_is_wrong(history: KeyHistory, found: str | None, said: str) -> None:
    problem = history.problem_with(found, 3)

    assert problem is not None
    assert said in problem


def test_nothing_may_be_there_while_nothing_was_acknowledged() -> None:
    assert KeyHistory("k").problem_with(None, 0) is None


def test_a_gap_counts_from_the_last_acknowledgement_before_the_moment_to_the_next_after() -> None:
    history = KeyHistory("k")
    history.acknowledged_at = [1.0, 2.0, 2.5, 6.0, 6.1]

    assert history.longest_gap(2.1, 6.5) == 3.5
    assert history.longest_gap(3.0, 4.0) == 3.5
    assert history.longest_gap(0.5, 2.2) == 1.0


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]

    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7
    assert percentile([1.0, 2.0], 0.5) == 1
