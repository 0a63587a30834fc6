"""How long commands waited between two readings of the agents' metrics."""

from quorate_cli.processes.agent_metrics import longest_parked

BEFORE = {0.01: 5, 0.05: 7, 5.0: 9, float("inf"): 9}


def test_nothing_that_waited_before_counts() -> None:
    assert longest_parked(BEFORE, BEFORE) == (0, 0.0)
    assert longest_parked({}, {}) == (0, 0.0)


def test_the_longest_wait_is_bounded_by_its_bucket() -> None:
    after = {0.01: 15, 0.05: 19, 5.0: 21, float("inf"): 21}

    assert longest_parked(BEFORE, after) == (12, 0.05)


def test_an_agent_that_was_not_there_before_counts_whole() -> None:
    assert longest_parked({}, {0.01: 0, 0.05: 2, float("inf"): 2}) == (2, 0.05)
