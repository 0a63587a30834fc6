"""A simulator proves something only when it notices a rule that is switched off."""

import pytest

from quorate_sim.canaries import hunt
from quorate_sim.planted import DEFECTS

SEEDS = 300
QUICK = (
    "acknowledge-before-majority",
    "alone-without-lease",
    "answered-above-a-hole",
    "any-change-is-a-hand-over",
    "domains-ignored",
    "filters-read-once",
    "keys-that-expire-forgotten",
    "lease-end-forgotten-at-rest",
    "lineage-before-data",
    "list-forgotten",
    "promise-forgotten",
    "refilled-without-its-log",
    "refused-for-ever",
    "roles-stay-where-taken",
    "same-term-twice",
    "serves-while-frozen",
    "skip-the-lease-wait",
    "snapshot-row-wins",
    "source-deletes-early",
    "staged-removes-first",
    "stale-master-obeyed",
    "stale-master-writes",
    "wake-up-forgotten",
    "weights-ignored",
)
"""Found by one of the first seeds; test_many_seeds has some that take more, `make canaries` all."""

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", QUICK)
def test_the_defect_is_found_within_the_seeds_of_one_run(name: str) -> None:
    found = hunt(name, SEEDS)
    assert found.seed is not None, found.broke or f"{SEEDS} seeds ran as if nothing were wrong"


def test_every_quick_one_is_a_defect() -> None:
    assert set(QUICK) <= set(DEFECTS)
