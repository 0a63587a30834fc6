"""More seeds than a quick run has: part of `make test`, not of `make test-fast`."""

import os
import subprocess
import sys

import pytest

from quorate_sim.canaries import hunt

FIRST, END = 200, 1900  # of the fresh ones; those before are run by test_seeds
BLOCK = 100
PLANTED_SEEDS = 2000

LATER = (
    "adopted-by-nobody",
    "never-looks-again",
    "promise-not-durable",
)
"""Planted defects that it takes more than a few seeds to find."""

pytestmark = [pytest.mark.simulation, pytest.mark.deep, pytest.mark.timeout(1800)]
"""One needs three minutes of a processor, and runs at idle priority beside all others."""


@pytest.mark.parametrize("offset", range(FIRST, END, BLOCK))
def test_no_fresh_seed_of_many_breaks_an_invariant(offset: int, fresh_seed: int) -> None:
    first = fresh_seed + offset
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-m", "quorate_sim.soak", "--first", str(first)]
    done = subprocess.run(
        [*command, "--seeds", str(BLOCK)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", LATER)
def test_the_defect_is_found_within_these_seeds(name: str) -> None:
    found = hunt(name, PLANTED_SEEDS)
    assert found.seed is not None, found.broke or f"{PLANTED_SEEDS} seeds ran as if all were well"
