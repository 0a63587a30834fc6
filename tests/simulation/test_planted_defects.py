"""A simulator proves something only when it notices a rule that is switched off."""

import pytest

from quorate.facts.errors import InvariantError
from quorate_sim.faults import run_seed
from quorate_sim.planted import DEFECTS

SEEDS = 300

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_the_defect_is_found_within_the_seeds_of_one_run(name: str) -> None:
    with DEFECTS[name]():
        for seed in range(SEEDS):
            try:
                run_seed(seed)
            except InvariantError:  # anything else is a mistake in the planted defect itself
                return
    pytest.fail(f"{name}: {SEEDS} seeds ran as if nothing were wrong")
