"""Histories of transactions, while agents join, die and freeze, judged by a foreign checker."""

import sys
from pathlib import Path

import pytest

from quorate_cluster import agent_without_watch
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.random_transactions import (
    KeyName,
    RandomTransactions,
    in_any_slots,
    in_one_slot,
)
from quorate_cluster.waiting import wait_until
from quorate_porcupine.judge import judge

pytestmark = [pytest.mark.process, pytest.mark.needs("go"), pytest.mark.timeout(300)]

MAY_SAY = {"MOVED", "EXECABORT", "CLUSTERDOWN", "unreachable:"}
"""What clients may be told when nothing was done."""


def _wait_more(load: RandomTransactions, count: int = 300) -> None:
    before = load.committed
    wait_until(lambda: load.committed > before + count, f"{count} transactions", 60)


@pytest.mark.parametrize("key_name", [in_one_slot, in_any_slots])
def test_transactions_are_strictly_serializable_while_agents_join_die_and_freeze(
    start_cluster: StartCluster,
    measured: Measured,
    fresh_seed: int,
    tmp_path: Path,
    key_name: KeyName,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    with RandomTransactions(cluster, "z", key_name=key_name, seed=fresh_seed) as load:
        _wait_more(load)
        cluster.add_agent()
        wait_until(lambda: cluster.primaries()["agent-4"] > 0, "primaries of agent-4")
        cluster.wait_quiet("z")

        victim = cluster.agent_with_most_primaries()
        victim.kill()
        cluster.wait_left(victim.name)
        cluster.wait_available("z")
        _wait_more(load)
        victim.start()
        cluster.wait_online()

        frozen = cluster.agent_with_most_primaries()
        frozen.pause()
        wait_until(lambda: cluster.primaries()[frozen.name] == 0, "other primaries")
        cluster.wait_available("z")
        _wait_more(load)
        frozen.resume()
        cluster.wait_online()
        _wait_more(load)

    verdict = judge(load.history)
    measured(
        f"histories of transactions {key_name.__name__}, seed {fresh_seed}",
        f"{load.committed} done, {load.aborted} aborted, {load.unknown} of unknown outcome;"
        f" {len(load.history)} operations in all",
    )
    file = tmp_path / "history.jsonl"  # `python -m quorate_porcupine FILE` judges it again
    file.write_text("".join(operation.line() + "\n" for operation in load.history))
    assert verdict.is_linearizable, f"seed {fresh_seed}, {file}: {verdict.text}"
    assert load.sums == {0}
    assert load.aborted > 0
    assert {*load.refused} <= MAY_SAY


@pytest.mark.parametrize("key_name", [in_one_slot, in_any_slots])
def test_agents_that_do_not_look_at_what_was_watched_are_found(
    start_cluster: StartCluster, key_name: KeyName
) -> None:
    planted = (sys.executable, "-P", str(Path(agent_without_watch.__file__)))
    cluster = start_cluster(agents=3, prefix=planted)
    cluster.apply_zone("z", partitions=16)
    with RandomTransactions(cluster, "z", groups=1, pause_s=0.001, key_name=key_name) as load:
        _wait_more(load)

    verdict = judge(load.history)

    assert verdict.word == "illegal"
    assert "UNCHANGED" in verdict.text
