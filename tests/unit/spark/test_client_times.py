"""The time that a validation adds to commands of clients, from what agents have counted."""

import pytest

from quorate_spark.comparing.client_times import client_times
from quorate_spark.copies import AgentTimes
from quorate_spark.verdict import ClientTimes

NONE: dict[int, int] = {}


def times(reads: dict[int, int], writes: dict[int, int] = NONE, process: int = 1) -> AgentTimes:
    return AgentTimes("store", process, reads, writes)


def test_the_p99_while_it_ran_is_compared_with_that_of_before() -> None:
    before = {"a": times({1000: 990, 2500: 10}, {5000: 1000}), "b": times({1000: 1000})}
    after = {
        "a": times({1000: 1480, 2500: 20, 10_000: 500}, {5000: 2000}),
        "b": times({1000: 1000}),
    }

    reads, writes = client_times(before, after)

    # 990 of 1000 are below 1 ms, and 500 of 1000 between 2.5 and 10 ms
    assert reads == ClientTimes(1000, 9.85, 0.995, 8.855)
    assert writes == ClientTimes(1000, 4.95, 4.95, 0.0)


def test_what_takes_longer_than_all_bounds_counts_as_the_longest() -> None:
    reads, _ = client_times({"a": times({100: 200})}, {"a": times({100: 210, -1: 300})})

    assert reads is not None
    assert reads.p99_ms == pytest.approx(0.1)


def test_too_few_commands_tell_nothing() -> None:
    for before, after in (({100: 99}, {100: 999}), ({100: 999}, {100: 1098}), ({}, {})):
        assert client_times({"a": times(before)}, {"a": times(after)}) == (None, None)
    assert client_times({}, {}) == (None, None)


def test_an_agent_that_was_started_again_is_left_out() -> None:
    before = {"a": times({100: 1000}), "b": times({100: 1000})}
    after = {"a": times({100: 2000}), "b": times({5000: 2000}, process=2), "c": times({5000: 9999})}

    reads, _ = client_times(before, after)

    assert reads is not None
    assert (reads.commands, reads.added_p99_ms) == (1000, 0.0)
