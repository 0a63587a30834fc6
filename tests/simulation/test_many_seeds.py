"""More seeds than a quick run has, on all cores: part of `make test`, not of `make test-fast`."""

import os
import subprocess
import sys

import pytest

FIRST, SEEDS = 300, 1700  # those before are run by test_seeds

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1500)]


def test_no_seed_of_many_breaks_an_invariant() -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-m", "quorate_sim.soak", "--first", str(FIRST), "--seeds"]
    done = subprocess.run(
        [*command, str(SEEDS)], env=environment, capture_output=True, text=True, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
