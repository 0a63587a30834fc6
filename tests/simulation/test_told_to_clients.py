"""What clients of simulated agents are told fits together: forwarded, parked, repeated, refused."""

import pytest

from quorate_sim_endpoints.story import play

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

PAST = (66, 79, 257, 325)
"""Forwarded commands happened twice: one was told that there is no room, and had been executed.  In
the last an agent was told of no rows: a master that had stood still had written that it left."""
QUICK = 10
END = 250
BLOCK = 40


@pytest.mark.parametrize("seed", PAST)
def test_a_seed_that_once_told_what_could_not_be(seed: int) -> None:
    assert play(seed) > 0


def test_histories_of_some_seeds_are_linearizable() -> None:
    assert sum(map(play, range(QUICK))) > 1_000


@pytest.mark.deep
@pytest.mark.parametrize("first", range(QUICK, END, BLOCK))
def test_histories_of_many_seeds_are_linearizable(first: int) -> None:
    assert sum(map(play, range(first, first + BLOCK))) > 10_000
