"""Histories of simulated clients, judged by a checker that is not ours."""

from dataclasses import replace

import pytest

from quorate_porcupine.judge import judge
from quorate_porcupine.operations import Operation
from quorate_porcupine.simulated import operations_of
from quorate_sim.cluster import Cluster
from quorate_sim.faults import run_seed

SEEDS = 12

pytestmark = [pytest.mark.simulation, pytest.mark.needs("go")]


def _history(seed: int) -> list[Operation]:
    return _operations(run_seed(seed))


def _operations(cluster: Cluster) -> list[Operation]:
    partitions = {uid: record.partitions for uid, record in cluster.zones.items()}
    return operations_of(cluster.clients.history, partitions)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_history_of_a_seed_is_linearizable(seed: int) -> None:
    history = _history(seed)
    assert history
    verdict = judge(history)
    assert verdict.is_linearizable, verdict.text


def test_one_stale_read_in_the_history_of_a_seed_is_found() -> None:
    history = _history(0)
    reads = [each for each in history if each.kind == "GET" and each.result is not None]
    for read in reads:
        ended = [each for each in history if each.key == read.key and each.kind == "SET"]
        older = [each for each in ended if each.is_known and each.argument != read.result]
        if older and older[0].end_ns is not None and older[0].end_ns < read.call_ns:
            stale = replace(read, result=older[0].argument)
            break
    else:
        raise AssertionError("the seed has no key that was written twice and read")

    verdict = judge([each if each is not read else stale for each in history])

    assert verdict.word == "illegal"
    assert f'key "{read.key}"' in verdict.text
