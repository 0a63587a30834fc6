"""Histories of simulated clients, judged by a checker that is not ours."""

from collections.abc import Iterator
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
    read, value = next(_stale_reads(history))

    stale = replace(read, result=value)
    verdict = judge([each if each is not read else stale for each in history])

    assert verdict.word == "illegal"
    assert f'key "{read.key}"' in verdict.text


def _stale_reads(history: list[Operation]) -> Iterator[tuple[Operation, str | None]]:
    """Reads, and a value that had been overwritten before each of them began.

    The write of the value had ended before that began which overwrote it: of two at once, either
    may be the later one."""
    writes = [each for each in history if each.kind == "SET" and each.is_known]
    for read in history:
        if read.kind != "GET" or read.result is None:
            continue
        of_key = [each for each in writes if each.key == read.key]
        for last in of_key:
            if last.argument != read.result or not _is_before(last, read):
                continue
            for older in of_key:
                if older.argument != last.argument and _is_before(older, last):
                    yield read, older.argument


def _is_before(one: Operation, other: Operation) -> bool:
    return one.end_ns is not None and one.end_ns < other.call_ns
