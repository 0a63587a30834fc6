"""Seeded runs of whole clusters: every invariant after every step, and rest after the faults."""

import pytest

from quorate_sim.faults import run_seed
from quorate_sim.kept_seeds import KEPT

STAY = 100
FRESH = 200
BLOCK = 20

pytestmark = pytest.mark.simulation

# An error names the seed and the command that replays it.


@pytest.mark.parametrize("first", range(0, STAY, BLOCK))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + BLOCK):
        run_seed(seed)


@pytest.mark.parametrize("offset", range(0, FRESH, BLOCK))
def test_no_fresh_seed_breaks_an_invariant(offset: int, fresh_seed: int) -> None:
    for seed in range(fresh_seed + offset, fresh_seed + offset + BLOCK):
        run_seed(seed)


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    run_seed(seed)
