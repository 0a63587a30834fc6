"""An agent whose files are damaged: what `quorate` says, and one command that mends it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_cluster.recorded_syncs import wait_recorded
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KEYS = [f"key-{number}" for number in range(100)]

Quorate = Callable[..., str]

ZONE = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: books}
spec: {clusterRef: {name: main}, partitions: 8, replicas: REPLICAS}
"""


@pytest.fixture
def quorate(quorate: Quorate) -> Quorate:
    """The command; its output, on one line."""
    return lambda *arguments, code=0: " ".join(quorate(*arguments, code=code).split())


def _client(cluster: DevCluster, agent: str = "agent-1") -> RedisCluster:
    zone = cluster.state().zone("books")
    assert zone is not None
    return RedisCluster(host="127.0.0.1", port=zone.ports[agent])


def _with_data(folder: Path, quorate: Quorate, agents: int, replicas: int) -> DevCluster:
    manifest = folder.with_name("zone.yaml")
    manifest.write_text(ZONE.replace("REPLICAS", str(replicas)))
    quorate("dev", "up", "--agents", str(agents))
    quorate("apply", "-f", str(manifest), "--wait", "60")
    cluster = DevCluster(ClusterFolder(folder), print)
    client = _client(cluster)
    for key in KEYS:
        client.set(key, key)
    client.close()
    return cluster


def _damage_log(cluster: DevCluster, agent: str) -> Path:
    """One byte in the middle of what was written last; where."""
    (log,) = [
        log
        for log in cluster.folder.data(agent).glob("zones/*/rocksdb/*.log")
        if log.stat().st_size
    ]
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    log.write_bytes(damaged)
    return log.parent


def test_a_damaged_agent_is_named_and_set_aside_by_one_command(
    folder: Path, quorate: Quorate
) -> None:
    cluster = _with_data(folder, quorate, 3, 3)
    wait_recorded(cluster.folder.data("agent-2"))
    quorate("dev", "kill", "agent-2")
    where = _damage_log(cluster, "agent-2")

    said = quorate("dev", "up", code=1)
    assert f"{where}: cannot be opened (Corruption: " in said
    assert "quorate dev start AGENT --set-aside" in said
    said = quorate("validate", "books", "--level", "counters", code=2)
    assert "agent-2 is not running" in said
    assert f"{where}: cannot be opened (Corruption: " in said

    said = quorate("dev", "start", "agent-2", "--set-aside")
    aside = cluster.folder.data("agent-2") / "set-aside-1"
    assert f"agent-2: its data is set aside in {aside}" in said
    assert (aside / "zones").is_dir()
    assert "cannot be opened" in (aside / "reason.txt").read_text()
    wait_until(lambda: _whole(cluster), "all copies", 60)
    assert f"{aside}: `quorate dev start agent-2 --set-aside`" in quorate("dev", "status")
    quorate("dev", "kill", "agent-1")
    client = _client(cluster, "agent-2")
    wait_until(lambda: [client.get(key) for key in KEYS] == [k.encode() for k in KEYS], "data", 30)


def _whole(cluster: DevCluster) -> bool:
    zone = cluster.state().zone("books")
    return zone is not None and zone.available == zone.partitions


def test_the_only_copy_is_never_set_aside(folder: Path, quorate: Quorate) -> None:
    cluster = _with_data(folder, quorate, 1, 1)
    said = quorate("dev", "start", "agent-1", "--set-aside", code=1)
    assert "agent-1 is running: stop it first" in said
    quorate("dev", "kill", "agent-1")
    wait_until(lambda: not cluster.state().nodes[0].online, "the loss", 30)

    said = quorate("dev", "start", "agent-1", "--set-aside", code=1)

    assert "no other agent has a copy of some partition of zone books" in said
    assert not list(cluster.folder.data("agent-1").glob("set-aside-*"))
    quorate("dev", "start", "agent-1")
    client = _client(cluster)
    wait_until(lambda: client.get(KEYS[0]) == KEYS[0].encode(), "data", 30)
    assert "operator is not an agent" in quorate("dev", "start", "operator", "--set-aside", code=1)


def test_older_copies_of_all_zones_are_set_aside_and_one_command_puts_them_back(
    folder: Path, quorate: Quorate
) -> None:
    cluster = _with_data(folder, quorate, 3, 3)
    agents = [agent.name for agent in cluster.folder.read().agents]
    quorate("dev", "down")
    for agent in agents:
        data = cluster.folder.data(agent)
        shutil.copytree(data / "zones", data.with_name("older"))
    quorate("dev", "up")
    wait_until(lambda: _whole(cluster), "all copies", 60)
    assert "partitions of zone books are LOST (0 of 8)" in quorate("dev", "put-back", code=1)
    quorate("dev", "down")
    for agent in agents:
        data = cluster.folder.data(agent)
        shutil.rmtree(data / "zones")
        data.with_name("older").rename(data / "zones")

    quorate("dev", "up", "--wait", "0")
    wait_until(lambda: "8 of them are LOST" in quorate("status"), "the loss", 60)

    assert "put it back (`quorate dev put-back`" in quorate("status")
    said = quorate("dev", "status")
    for agent in agents:
        assert f"set aside in {cluster.folder.data(agent)}/set-aside-1: data folder" in said
    assert "so data that was synced is lost" in said
    said = quorate("dev", "put-back")
    assert all(f"{agent}: set-aside-1 was put back" in said for agent in agents)
    wait_until(lambda: _whole(cluster), "all copies", 60)
    client = _client(cluster)
    assert [client.get(key) for key in KEYS] == [key.encode() for key in KEYS]
