"""Turns that go on while long values are written ahead: no invariant breaks, clusters come to rest.

Another part of an agent's work goes between, and the process may end there.
"""

import itertools

import pytest

from quorate_sim.disk import SimStorage
from quorate_sim.faults import run_seed

pytestmark = pytest.mark.simulation

SEEDS = 12


@pytest.mark.parametrize("calls", [2, 5])
def test_no_seed_breaks_an_invariant_where_every_turn_goes_on_for_some_calls(
    monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    asked = itertools.count(1)
    told_to_go_on = []

    def write_ahead(storage: SimStorage) -> bool:
        done = next(asked) % calls == 0
        if not done:
            told_to_go_on.append(storage)
        return done

    monkeypatch.setattr(SimStorage, "write_ahead", write_ahead)
    for seed in range(SEEDS):
        run_seed(seed)

    assert len(told_to_go_on) > 1000
