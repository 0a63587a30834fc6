"""A zone's timers on real processes, under load: who gets copies, when, and what a restart does."""

import time

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

UP_S = 15
DOWN_S = 20
NEW_S = 5
LATE_S = 60
"""Bound of a timer's delay: the time without an operator, ages stored every 15 s, and slack."""


def _wait_for_data_nodes(cluster: Cluster, names: tuple[str, ...], timer_s: int) -> None:
    """Wait until the zone's data nodes are these: an operator that has just started says none."""
    wait_until(
        lambda: tuple(cluster.zone("z")["status"]["dataNodes"]) == names,
        f"the data nodes {', '.join(names)}",
        timer_s + LATE_S,
    )


def test_timers_fire_late_never_early_whatever_becomes_of_the_operator(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone(
        "z",
        partitions=8,
        dataNodesAutoAdjustScaleUpSeconds=UP_S,
        dataNodesAutoAdjustScaleDownSeconds=DOWN_S,
    )
    with Workload(cluster, "z") as load:
        load.wait_for_writes(100)
        placed = time.monotonic()
        # Agents that join right after the zone was placed belong to the new cluster.
        wait_until(lambda: time.monotonic() >= placed + NEW_S, "the end of that time", NEW_S + 10)
        began = time.monotonic()
        cluster.add_agent("agent-4")
        cluster.wait_online("agent-4")
        (timer,) = cluster.zone("z")["status"]["timers"]
        assert (timer["kind"], timer["nodes"]) == ("ScaleUp", ["agent-4"])
        assert timer["due"]
        cluster.operator.kill()
        cluster.operator.start()

        _wait_for_data_nodes(cluster, ("agent-1", "agent-2", "agent-3", "agent-4"), UP_S)
        assert time.monotonic() - began >= UP_S
        cluster.wait_quiet("z")
        assert _owners(cluster)["agent-4"] > 0

        began = time.monotonic()
        cluster.agents["agent-1"].kill()
        cluster.wait_left("agent-1")
        cluster.wait_available("z")
        cluster.operator.kill()
        cluster.operator.start()

        _wait_for_data_nodes(cluster, ("agent-2", "agent-3", "agent-4"), DOWN_S)
        assert time.monotonic() - began >= DOWN_S
        cluster.wait_quiet("z")
        assert _owners(cluster)["agent-1"] == 0
        load.wait_for_writes(100)

    assert find_violations(load.writes, load.reads + load.read_back()) == []
    assert cluster.zone("z")["status"]["timers"] == []


def _owners(cluster: Cluster) -> dict[str, int]:
    return {node["name"]: node["owners"] for node in cluster.api.status()["nodes"]}
