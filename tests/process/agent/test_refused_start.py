"""An agent that cannot trust its folder, or may not have it, says so and ends."""

import subprocess

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import Agent, environment, python
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


def _with_data(start_cluster: StartCluster) -> tuple[Cluster, Agent]:
    cluster = start_cluster(agents=1)
    cluster.apply_zone("z", partitions=4, replicas=1)
    client = cluster.client("z")
    for number in range(200):
        client.set(f"key-{number}", b"value" * 20)
    return cluster, cluster.agents["agent-1"]


def test_a_second_start_on_the_same_folder_is_refused_and_the_first_lives_on(
    start_cluster: StartCluster,
) -> None:
    cluster, agent = _with_data(start_cluster)

    command = python("quorate_agent", "--name", "agent-1", "--data", str(agent.data))
    command += ["--cluster", "any", "--peer", "127.0.0.1:0"]
    command += ["--client-host", "127.0.0.1", "--admin", "127.0.0.1:0"]
    second = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )

    assert second.returncode == 3
    assert f"{agent.data}/lock: process {agent.pid} is using this folder" in second.stderr
    assert "Way out" in second.stderr
    assert "Traceback" not in second.stderr
    assert cluster.client("z").get("key-7") == b"value" * 20


def test_an_agent_whose_database_is_damaged_ends_and_names_the_file(
    start_cluster: StartCluster,
) -> None:
    _, agent = _with_data(start_cluster)
    agent.kill()
    (log,) = agent.data.glob("zones/*/rocksdb/*.log")
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    log.write_bytes(damaged)

    agent.start()
    wait_until(lambda: not agent.is_alive(), "the agent's end", 30)

    said = agent.log_tail()
    assert "rocksdb: cannot be opened (Corruption: " in said
    assert "Way out: move the agent's whole data folder away" in said
