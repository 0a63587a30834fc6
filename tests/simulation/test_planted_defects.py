"""A simulator proves something only when it notices a rule that is switched off."""

import pytest

from quorate_sim.canaries import SEEDS, hunt
from quorate_sim.planted import DEFECTS

QUICK = {
    "acknowledge-before-majority": 2,
    "adopted-by-nobody": 113,
    "alone-without-lease": 152,
    "answered-above-a-hole": 0,
    "any-change-is-a-hand-over": 5,
    "domains-ignored": 19,
    "filters-read-once": 23,
    "keys-that-expire-forgotten": 1,
    "lease-end-forgotten-at-rest": 2,
    "lineage-before-data": 13,
    "list-forgotten": 0,
    "never-looks-again": 3,
    "promise-forgotten": 0,
    "promise-not-durable": 160,
    "refilled-without-its-log": 185,
    "refused-for-ever": 10,
    "roles-stay-where-taken": 13,
    "same-term-twice": 6,
    "serves-while-frozen": 37,
    "skip-the-lease-wait": 116,
    "snapshot-row-wins": 0,
    "source-deletes-early": 0,
    "staged-removes-first": 3,
    "stale-master-obeyed": 2,
    "stale-master-writes": 2,
    "wake-up-forgotten": 0,
    "weights-ignored": 7,
}
"""By which seed each was found last; `make canaries` has all.

If the simulator has changed and that seed finds nothing, the others are tried."""

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1800)]
"""All seeds together take ten minutes of a processor."""


@pytest.mark.parametrize("name", QUICK)
def test_the_defect_is_found_within_the_seeds_of_one_run(name: str) -> None:
    found = hunt(name, first=QUICK[name])
    assert found.seed is not None, found.broke or f"{SEEDS} seeds ran as if nothing were wrong"


def test_every_quick_one_is_a_defect() -> None:
    assert QUICK.keys() <= DEFECTS.keys()
    assert max(QUICK.values()) < SEEDS
