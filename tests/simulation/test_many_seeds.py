"""More seeds than a quick run has: part of `make test`, not of `make test-fast`."""

import os
import subprocess
import sys

import pytest

FIRST, END = 200, 1900  # of the fresh ones; those before are run by test_seeds
BLOCK = 100

pytestmark = [pytest.mark.simulation, pytest.mark.deep, pytest.mark.timeout(1800)]
"""They run at idle priority beside all others."""


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
