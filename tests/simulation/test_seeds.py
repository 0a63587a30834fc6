"""Seeded runs of whole clusters: every invariant after every step, and rest after the faults."""

import pytest

from quorate_sim.faults import run_seed

SEEDS = 300
BLOCK = 20

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + BLOCK):
        run_seed(seed)  # its error names the seed; `python -m quorate_sim SEED --trace` tells why
