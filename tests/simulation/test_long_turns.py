"""Turns that go on while long values are written ahead: no invariant breaks, clusters come to rest.

Another part of an agent's work goes between, and the process may end there.  Of a zone with several
partitions some wait, and the others' writes leave meanwhile.
"""

from collections.abc import Collection
from random import Random

import pytest

from quorate_sim.disk import SimStorage
from quorate_sim.faults import run_seed

pytestmark = pytest.mark.simulation

SEEDS = 40


@pytest.mark.parametrize("calls", [2, 5])
def test_no_seed_breaks_an_invariant_where_every_turn_goes_on_for_some_calls(
    monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    random = Random(calls)
    told_to_go_on, divided = [], []
    commit = SimStorage.commit

    def write_ahead(storage: SimStorage) -> Collection[int]:
        waiting = [partition for partition in storage.gathered if random.randrange(calls)]
        if waiting:
            told_to_go_on.append(storage)
        return waiting

    def commit_noting(
        storage: SimStorage,
        waiting: Collection[int] = (),
        waiting_records: Collection[bytes] = (),
    ) -> None:
        written = storage.written
        commit(storage, waiting, waiting_records)
        if waiting and storage.written > written:
            divided.append(storage)

    monkeypatch.setattr(SimStorage, "write_ahead", write_ahead)
    monkeypatch.setattr(SimStorage, "commit", commit_noting)
    for seed in range(SEEDS):
        run_seed(seed)

    assert len(told_to_go_on) > 1000
    assert len(divided) > 100
