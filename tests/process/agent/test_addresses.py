"""Agents that are elsewhere after a restart, under names that lead elsewhere, or on IPv6 only."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from quorate_cluster.background import Background
from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.names import Names, own_network
from quorate_cluster.processes import environment
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

BACK_S_MAX = 60.0
KEYS = [f"key-{number}" for number in range(64)]
NAMES = ["agent-1.pods", "agent-2.pods", "agent-3.pods"]


class Writes(Background):
    """One stock client that writes on and on, whatever happens.  `acknowledged`: key -> the last
    number for which it was told OK; a later one may be there, too."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.acknowledged: dict[str, int] = {}
        self.last_ok: dict[str, float] = {}
        retry = Retry(ConstantBackoff(0.2), 5)
        self.client: Any = cluster.client("z", socket_timeout=3, retry=retry)
        self.add_road(self._write)

    def _write(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            for key in KEYS:
                if self.stop.is_set():
                    return
                try:
                    self.client.set(key, number)
                except CLIENT_ERRORS:
                    continue
                self.acknowledged[key] = number
                self.last_ok[key] = time.monotonic()

    def wait_all_written_since(self, moment: float, timeout_s: float = 60) -> float:
        """Until each key was written after `moment`; seconds that it took."""

        def late() -> list[str]:
            return [key for key in KEYS if self.last_ok.get(key, 0) <= moment]

        wait_until(lambda: not late(), "writes of every key", timeout_s, late)
        return time.monotonic() - moment

    def lost(self) -> dict[str, Any]:
        """Keys of which less is there than was acknowledged."""
        found = {key: self.client.get(key) for key in KEYS}
        return {
            key: (self.acknowledged[key], value)
            for key, value in found.items()
            if int(value or 0) < self.acknowledged[key]
        }


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(tmp_path / "hosts", monkeypatch)


@pytest.fixture
def peer_ports() -> Iterator[int]:
    return free_ports()


def _kill_all(cluster: Cluster) -> None:
    """At once, as when all pods are deleted and their nodes are gone."""
    for agent in cluster.agents.values():
        os.kill(agent.pid, 9)
    for agent in cluster.agents.values():
        agent.forget()


@pytest.mark.needs("own-names")
def test_all_agents_come_back_under_their_names_with_other_addresses(
    start_cluster: StartCluster, names: Names, peer_ports: Iterator[int], measured: Measured
) -> None:
    cluster = start_cluster(agents=0, prefix=names.prefix, operator_prefix=names.prefix)
    names.set({name: f"127.0.1.{at}" for at, name in enumerate(NAMES, 1)})
    ports = {name: (next(peer_ports), next(peer_ports)) for name in NAMES}
    for at, name in enumerate(NAMES, 1):
        cluster.define_agent().move(f"127.0.1.{at}", *ports[name], name=name)
    for agent in cluster.agents.values():
        agent.start()
    cluster.declare()
    cluster.apply_zone("z", partitions=16)
    assert sorted(host for host, _ in cluster.endpoints("z")) == NAMES

    with Writes(cluster) as writes:
        writes.wait_all_written_since(time.monotonic())
        assert {node.host for node in writes.client.get_nodes()} == {*NAMES}
        _kill_all(cluster)
        names.set({name: f"127.0.2.{at}" for at, name in enumerate(NAMES, 1)})
        for at, name in enumerate(NAMES, 1):
            cluster.agents[f"agent-{at}"].move(f"127.0.2.{at}", *ports[name], name=name)
        began = time.monotonic()
        for agent in cluster.agents.values():
            agent.start(wait=False)
        took = writes.wait_all_written_since(began, BACK_S_MAX)

    measured("all agents killed, back at other addresses under their names", f"{took:.1f} s")
    assert took <= BACK_S_MAX
    assert writes.lost() == {}
    assert {node["address"] for node in cluster.api.status()["nodes"]} == {
        f"{name}:{peer}" for name, (peer, _) in ports.items()
    }


def test_all_agents_come_back_at_addresses_and_ports_that_nobody_knew(
    start_cluster: StartCluster, peer_ports: Iterator[int], measured: Measured
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    with Writes(cluster) as writes:
        writes.wait_all_written_since(time.monotonic())
        _kill_all(cluster)
    stores = {node["name"]: node["store"] for node in cluster.api.status()["nodes"]}

    began = time.monotonic()
    for at, agent in enumerate(cluster.agents.values(), 1):
        agent.move(f"127.0.2.{at}", next(peer_ports), next(peer_ports))
        agent.start(wait=False)
    cluster.declare()
    wait_until(
        lambda: all(host.startswith("127.0.2.") for host, _ in cluster.endpoints("z")),
        "new client addresses",
        say=lambda: cluster.endpoints("z"),
    )
    cluster.wait_available("z")
    again = Writes(cluster)
    again.acknowledged = writes.acknowledged
    assert again.lost() == {}
    with again:
        took = again.wait_all_written_since(began, BACK_S_MAX)

    measured("all agents killed, back at addresses nobody knew", f"{took:.1f} s")
    assert took <= BACK_S_MAX
    assert not any(node["state"] == "Draining" for node in cluster.api.status()["nodes"])
    assert {n["name"]: n["store"] for n in cluster.api.status()["nodes"]} == stores


@pytest.mark.needs("own-network")
def test_a_cluster_lives_where_there_is_ipv6_only() -> None:
    root = Path(__file__).parents[3]
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(root / "tests")
    done = subprocess.run(
        [*own_network(), sys.executable, "-m", "quorate_cluster.ipv6_story"],
        capture_output=True,
        text=True,
        env=variables,
        timeout=200,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["ipv4"] is False
    assert [seen[f"read{when}"] for when in ("", " after a loss", " after restarts")] == [200] * 3
    assert all(each.startswith("[::1]:") for each in (*seen["endpoints"], *seen["members"]))
    assert seen["nodes"] == ["::1"]
