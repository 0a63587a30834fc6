"""An agent whose folder lost data that it had synced: it votes no more as if it had it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import Agent
from quorate_cluster.recorded_syncs import wait_recorded

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

WRITES = 200


def _newest_log(agent: Agent) -> Path:
    return max(log for log in agent.data.glob("zones/*/rocksdb/*.log") if log.stat().st_size)


def _delete_newest_log(agent: Agent) -> None:
    _newest_log(agent).unlink()


def _cut_newest_log_off(agent: Agent) -> None:
    log = _newest_log(agent)
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def _put_older_zones_back(agent: Agent) -> None:
    shutil.rmtree(agent.data / "zones")
    shutil.copytree(agent.data.with_name("older zones"), agent.data / "zones")


def _store(agent: Agent) -> str:
    return str(json.loads((agent.data / "folder.json").read_text())["store"])


def _start(cluster: Cluster, *agents: Agent) -> None:
    for agent in agents:
        agent.start(wait=False)
    for agent in agents:
        agent.wait_listening()
    cluster.wait_online(*[agent.name for agent in agents])


@pytest.mark.parametrize("lose", [_delete_newest_log, _cut_newest_log_off, _put_older_zones_back])
def test_answered_writes_outlive_a_voter_that_lost_them(
    start_cluster: StartCluster, lose: Callable[[Agent], None]
) -> None:
    """C is down, A and B answer for the writes and are killed, A loses some; A and C start."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=4)
    a, b, c = cluster.agents.values()
    a.terminate()
    shutil.copytree(a.data / "zones", a.data.with_name("older zones"))
    a.start()
    cluster.wait_quiet("z")
    c.kill()
    cluster.wait_left(c.name)
    client = cluster.client("z", first=(a.name, b.name))
    written = {f"key-{number}": b"%d" % number for number in range(WRITES)}
    for key, value in written.items():
        client.set(key, value)
    wait_recorded(a.data)
    for agent in (a, b):
        agent.kill()
    for agent in (a, b):
        cluster.wait_left(agent.name)
    old = _store(a)
    lose(a)

    _start(cluster, a, c)

    said = a.log_tail(200)
    assert f"data folder {a.data}, zone {cluster.zone('z')['metadata']['uid']}: sequence" in said
    assert "is recorded as synced" in said
    assert (a.data / "set-aside-1/zones").is_dir()
    assert _store(a) != old
    _start(cluster, b)
    cluster.wait_quiet("z")
    client = cluster.client("z")
    assert {key: client.get(key) for key in written} == written


def test_an_agent_that_does_nothing_writes_nothing(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=1)
    cluster.apply_zone("z", partitions=4, replicas=1)
    agent = cluster.agents["agent-1"]
    cluster.client("z").set("key", "value")

    wait_recorded(agent.data)
    store = _store(agent)
    agent.terminate()
    agent.start()
    assert _store(agent) == store
    assert cluster.wait_available("z")
    assert cluster.client("z").get("key") == b"value"
