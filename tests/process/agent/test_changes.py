"""Agents join and restart under clients that go on: no command fails, nothing is lost or left."""

import re
import time

import pytest

from quorate_cluster.changes import grow
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.served import assert_served
from quorate_cluster.standstill import standstill_s
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def _with_data(start_cluster: StartCluster, count: int) -> tuple[Cluster, dict[str, bytes]]:
    """Three agents, zone "z", and what is in it: `count` values of about a kilobyte."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    data = {f"data-{number}": f"{number}-".encode() * 166 for number in range(count)}
    pipeline = cluster.client("z").pipeline()
    for number, (key, value) in enumerate(data.items()):
        pipeline.set(key, value)
        if number % 500 == 499:
            pipeline.execute()
    pipeline.execute()
    return cluster, data


def _assert_all_there(cluster: Cluster, data: dict[str, bytes]) -> None:
    pipeline = cluster.client("z").pipeline()
    for key in data:
        pipeline.get(key)
    assert pipeline.execute() == [*data.values()]


def _copies_on_agents(cluster: Cluster, zone: str) -> dict[str, int]:
    found = {}
    for name, agent in cluster.agents.items():
        found[name] = sum(agent.metrics("quorate_copies", zone=zone))
    return found


def test_a_fourth_agent_takes_its_share_without_a_failed_command(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster, data = _with_data(start_cluster, 4000)
    with Pulses(cluster, "z") as pulses:
        began = time.monotonic()
        grow(cluster)
        took = time.monotonic() - began
        pulses.wait_all_written_since(time.monotonic())

    status = cluster.zone_status("z")
    measured(
        "fourth agent joins",
        f"{status['migrations_done']} migrations, {status['bytes_moved'] / 1e6:.1f} MB in"
        f" {took:.1f} s; keys not writable for at most {max(pulses.longest_gaps_s(began)):.2f} s",
    )
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    nodes = {node["name"]: node for node in cluster.api.status()["nodes"]}
    assert nodes["agent-4"]["owners"] == 12  # 16 partitions, 3 copies each, on 4 agents
    assert nodes["agent-4"]["primaries"] == 4
    wait_until(
        lambda: sum(_copies_on_agents(cluster, "z").values()) == 48,
        "end of the copies that were moved away",
        say=lambda: _copies_on_agents(cluster, "z"),
    )
    _assert_all_there(cluster, data)
    problems: list[object] = [*pulses.failed]
    if status["migrations_failed"]:
        problems.append(f"migrations that failed: {status['migrations_failed']}")
    assert_served(cluster, problems)


def test_restarting_agents_one_by_one_fails_no_command_and_copies_nothing_whole(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster, data = _with_data(start_cluster, 2000)
    with Pulses(cluster, "z") as pulses:
        began = time.monotonic()
        for agent in cluster.agents.values():
            agent.terminate()
            agent.start()
            cluster.wait_online(agent.name)
            cluster.wait_quiet("z")
        took = time.monotonic() - began
        pulses.wait_all_written_since(time.monotonic())

    measured(
        "rolling restart of three agents",
        f"{took:.1f} s; keys not writable for at most {max(pulses.longest_gaps_s(began)):.2f} s;"
        f" failed commands {len(pulses.failed)}",
    )
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    assert cluster.zone_status("z")["full_copies"] == 0
    for agent in cluster.agents.values():
        assert sum(agent.metrics("quorate_full_copies_total", zone="z")) == 0
    _assert_all_there(cluster, data)
    # Handed over before the process ended, not taken over after it.
    taken_over = re.findall('[^"]*the primary has left.*', cluster.operator.log.read_text())
    assert_served(cluster, [*pulses.failed, *taken_over])


def test_a_cluster_that_was_stopped_whole_has_its_data_when_it_starts_again(
    start_cluster: StartCluster,
) -> None:
    cluster, data = _with_data(start_cluster, 2000)
    for process in cluster.processes:
        process.interrupt()
    for process in cluster.processes:
        process.terminate()

    for process in cluster.processes:
        process.start(wait=False)
    for process in cluster.processes:
        process.wait_listening()
    cluster.wait_quiet("z")

    _assert_all_there(cluster, data)
    assert cluster.zone_status("z")["full_copies"] == 0


def test_a_cluster_that_was_killed_whole_has_its_data_when_it_starts_again(
    start_cluster: StartCluster,
) -> None:
    cluster, data = _with_data(start_cluster, 2000)
    for process in cluster.processes:
        process.kill()

    for process in cluster.processes:
        process.start(wait=False)
    cluster.wait_quiet("z")

    _assert_all_there(cluster, data)


def test_agents_go_on_serving_while_the_operator_is_gone(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    with Pulses(cluster, "z") as pulses:
        cluster.operator.kill()
        moment = time.monotonic()
        wait_until(lambda: time.monotonic() - moment > 5, "five seconds without a master")
        pulses.wait_all_written_since(time.monotonic())

        cluster.operator.start()
        cluster.wait_quiet("z")
        pulses.wait_all_written_since(time.monotonic())
    ended = time.monotonic()

    assert pulses.lost() == []
    assert pulses.undocumented() == []
    assert max(pulses.longest_gaps_s(moment)) - standstill_s(moment, ended) < 5
    assert_served(cluster, pulses.failed)
