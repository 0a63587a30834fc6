"""What clients of simulated agents are told fits together: forwarded, parked, repeated, refused."""

import pytest

from quorate_agent.commands.routing import forwards
from quorate_sim_endpoints.story import play

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

PAST = (66, 79, 257, 325, 5500000004982)
"""Forwarded commands happened twice: one was told that there is no room, and had been executed.  In
the fourth an agent was told of no rows: a master that had stood still had written that it left.  In
the last, two processes of the simulation had one name and got each other's replies."""
HOLDS = 0.5
HELD = (0, 8, 29, 51, 26)
"""An agent gets a forwarded command, or still has it parked, when it may serve and the client has
been told that nobody knows.  The last two draw other stories now."""
HELD_PAST = (44, 2360233980139, 2000490040170)
"""The first was of that kind, too, and draws another story now.  In the second a former master
wrote the registration of an earlier process over that of a later one, and the next master dropped a
copy in memory that was there (I-1).  In the third an agent had no room for what it had forwarded,
and said so, when the partition was its own again; the agent that had the command executed it."""
SEARCHED = 200
QUICK = 10
FRESH = 240
BLOCK = 40


@pytest.mark.parametrize("seed", PAST)
def test_a_seed_that_once_told_what_could_not_be(seed: int) -> None:
    assert play(seed) > 0


def test_histories_of_some_seeds_are_linearizable() -> None:
    assert sum(map(play, range(QUICK))) > 1_000


@pytest.mark.parametrize("seed", [*HELD, *HELD_PAST])
def test_what_a_network_held_for_too_long_is_not_executed(seed: int) -> None:
    assert play(seed, HOLDS) > 0


def test_it_is_noticed_when_such_a_command_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in some 20 seeds comes upon it; which ones do changes with every new message."""
    monkeypatch.setattr(forwards, "RATE_PERCENT_MIN", 1_000_000)  # clients wait for ever, it says
    assert any(map(_executes_what_was_given_up, range(SEARCHED)))


def _executes_what_was_given_up(seed: int) -> bool:
    try:
        play(seed, HOLDS)
    except AssertionError as error:
        return "is executed after its client was told" in str(error)
    return False


@pytest.mark.deep
@pytest.mark.parametrize("offset", range(0, FRESH, BLOCK))
def test_histories_of_fresh_seeds_are_linearizable(offset: int, fresh_seed: int) -> None:
    first = fresh_seed + offset
    assert sum(map(play, range(first, first + BLOCK))) > 10_000


@pytest.mark.deep
@pytest.mark.parametrize("offset", range(0, FRESH, BLOCK))
def test_histories_are_linearizable_where_networks_hold_messages(
    offset: int, fresh_seed: int
) -> None:
    first = fresh_seed + offset
    assert sum(play(seed, HOLDS) for seed in range(first, first + BLOCK)) > 10_000
