"""An agent that cannot trust its folder, or may not have it, says so and ends."""

import os
import subprocess
from contextlib import suppress

import pytest

from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.processes import Agent, environment, python
from quorate_cluster.recorded_syncs import wait_recorded
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]


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
    command += ["--secret-file", str(cluster.secret_file)]
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
    wait_recorded(agent.data)
    agent.kill()
    (log,) = agent.data.glob("zones/*/rocksdb/*.log")
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    log.write_bytes(damaged)

    with pytest.raises(RuntimeError, match="ended while it started"):
        agent.start()

    said = agent.log_tail(1)
    assert said.startswith("quorate-agent: ")
    assert "rocksdb: cannot be opened (Corruption: " in said
    assert "Way out: set the agent's whole data folder aside" in said
    assert "Traceback" not in agent.log_tail(400)


def test_a_folder_of_another_format_version_is_refused(start_cluster: StartCluster) -> None:
    _, agent = _with_data(start_cluster)
    agent.terminate()
    file = agent.data / "folder.json"
    text = file.read_text()
    changed = text.replace('"format": 2', '"format": 3').replace('"format":2', '"format":3')
    assert changed != text
    file.write_text(changed)

    with pytest.raises(RuntimeError, match="ended while it started"):
        agent.start()

    said = agent.log_tail(3)
    assert "folder.json" in said
    assert "format" in said
    assert "Way out" in said
    assert "Traceback" not in said


def test_an_agent_of_another_cluster_is_refused(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=1)
    stranger = Agent(
        "agent-2", cluster.folder, "another", cluster.agents["agent-1"].peer_port + 2, 31_990
    )
    cluster.agents["agent-2"] = stranger
    stranger.start()
    with pytest.raises(TimeoutError):
        cluster.declare(timeout_s=3)

    said = str(cluster.api.get("storageclusters", "main")["status"])
    assert "another" in said


def test_an_agent_without_data_is_small(start_cluster: StartCluster, measured: Measured) -> None:
    cluster = start_cluster(agents=1)
    agent = cluster.agents["agent-1"]
    empty = agent.rss_bytes()
    cluster.apply_zone("z", partitions=256)

    measured(
        "memory of an agent",
        f"empty {empty / 1e6:.0f} MB, with an empty zone of 256 partitions"
        f" {agent.rss_bytes() / 1e6:.0f} MB",
    )
    assert empty < 60 * 1024 * 1024


def test_an_agent_that_meets_a_damaged_table_while_it_runs_ends_and_names_it(
    start_cluster: StartCluster,
) -> None:
    """No client is told that a key is absent, or anything else that is not so."""
    cluster, agent = _with_data(start_cluster)
    rows = {f"long-{number}": os.urandom(1000) for number in range(300)}
    client = cluster.client("z")
    for key, value in rows.items():
        client.set(key, value)
    agent.terminate()
    for table in agent.data.glob("zones/*/rocksdb/*.sst"):
        damaged = bytearray(table.read_bytes())
        rows_begin = len(damaged) * 6 // 10  # behind records and updates
        for at in range(rows_begin, len(damaged) * 9 // 10, 1000):
            damaged[at] ^= 0xFF
        table.write_bytes(damaged)

    agent.start()  # only what copies need at once is read before it takes part
    told = {}
    with suppress(*CLIENT_ERRORS):
        client = cluster.client("z")
        for key in rows:
            told[key] = client.get(key)
    wait_until(lambda: not agent.is_alive(), "the agent's end", 30)

    assert told.items() <= rows.items()
    assert len(told) < len(rows)
    said = agent.log_tail(1)
    assert said.startswith("quorate-agent: ")
    assert "rocksdb: cannot read: Corruption: " in said
    assert ".sst" in said
    assert "Way out: set the agent's whole data folder aside" in said
    assert "Traceback" not in agent.log_tail(400)
