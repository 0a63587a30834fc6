"""200 zones on three agents: applied at once, written by stock clients, kept when a pod goes."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import pytest
from redis.cluster import RedisCluster

from quorate.wire.schema.resource import API_VERSION
from quorate_cluster.fixtures import Measured
from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import AGENTS, CLUSTER, OPERATORS, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(1800)]

NAMES = [f"many-{number}" for number in range(1, 201)]
PARTITIONS = 4
LABEL = "test.quorate.io/many-zones"
OF_THESE = f"--selector={LABEL}"
AVAILABLE_S_MAX = 400
"""On two cores 27 s were seen beside other tests."""
GONE_S_MAX = 200
MEMORY_MIB_MAX = 600
"""Of an agent, as it tells clients: a pod with so many zones fits into a limit of a gigabyte."""


def test_200_zones_serve_and_outlive_a_pod(first_day: Installed, measured: Measured) -> None:
    pods = _uids(first_day, AGENTS)
    lease = _lease(first_day)
    began = time.monotonic()
    with _zones(first_day), ExitStack() as stack:
        _wait_all(first_day, "condition=Available")
        available_s = time.monotonic() - began

        began = time.monotonic()
        clients = dict(zip(NAMES, _at_once(first_day.client, NAMES), strict=True))
        for client in clients.values():
            stack.enter_context(client)
        _at_once(_write, clients.items())
        written_s = time.monotonic() - began
        assert _wrong(clients) == []
        memory = _memory_mib(clients[NAMES[0]])
        assert _uids(first_day, AGENTS) == pods
        assert _restarts(first_day) == 0
        assert _lease(first_day) == lease, "nothing that zones cost delays a renewal"

        victim = f"{CLUSTER}-agent-2-0"
        began = time.monotonic()
        first_day.kubectl("delete", "pod", victim)
        first_day.wait(
            lambda: _uids(first_day, AGENTS).get(victim) not in (None, pods[victim]), "a new pod"
        )
        first_day.wait_whole(AVAILABLE_S_MAX)
        _wait_all(first_day, "condition=FullyReplicated")
        whole_s = time.monotonic() - began
        _wait_all(first_day, "condition=Available")

        assert _wrong(clients) == [], "by clients that have lived through it"
        with first_day.client(NAMES[-1]) as new:
            assert _read((NAMES[-1], new)) == _values(NAMES[-1])
        assert _restarts(first_day) == 0
        assert _lease(first_day) == lease
        measured(
            f"{len(NAMES)} zones of {PARTITIONS} partitions on three agents",
            f"available after {available_s:.1f} s; {written_s:.1f} s for a client in each and its"
            f" first writes; whole {whole_s:.1f} s after a pod was deleted; memory of agents"
            f" {max(memory)} MiB at most",
        )
        assert len(memory) == 3
        assert max(memory) < MEMORY_MIB_MAX


T = TypeVar("T")
U = TypeVar("U")
THREADS = 16


@contextmanager
def _zones(installed: Installed) -> Iterator[None]:
    """Applied in one go; in the end they go with their data."""
    declared = {"apiVersion": "v1", "kind": "List", "items": [_zone(name) for name in NAMES]}
    try:
        installed.kubectl("apply", "--filename=-", stdin=json.dumps(declared))
        yield
    finally:
        installed.kubectl("delete", "zones", OF_THESE, "--wait=false")
        installed.wait(lambda: not _left(installed), "an end of zones and Services", GONE_S_MAX)


def _zone(name: str) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "Zone",
        "metadata": {"name": name, "labels": {LABEL: "true"}},
        "spec": {
            "clusterRef": {"name": CLUSTER},
            "partitions": PARTITIONS,
            "replicas": 3,
            "storage": "Persistent",
            "deletionPolicy": "Delete",
        },
    }


def _wait_all(installed: Installed, what: str, timeout_s: float = AVAILABLE_S_MAX) -> None:
    """Until `kubectl wait --for=WHAT` has seen it of every one of the zones."""
    wait = ("wait", "zones", OF_THESE, f"--for={what}", "--timeout=60s")
    installed.wait(
        lambda: installed.kubectl(*wait, check=False).count(" met\n") == len(NAMES),
        f"{len(NAMES)} zones with {what}",
        timeout_s,
    )


def _left(installed: Installed) -> list[str]:
    found = installed.kubectl("get", "zones,services", "--output=name").split()
    return [each for each in found if "/many-" in each]


def _keys(name: str) -> list[str]:
    """Some for all partitions of a zone, which no other zone has."""
    return [f"{name} {number}" for number in range(2 * PARTITIONS)]


def _values(name: str) -> list[bytes]:
    return [f"value of {key}".encode() for key in _keys(name)]


def _write(of: tuple[str, RedisCluster]) -> None:
    name, client = of
    for key in _keys(name):
        assert client.set(key, f"value of {key}")


def _read(of: tuple[str, RedisCluster]) -> list[object]:
    name, client = of
    return [client.get(key) for key in _keys(name)]


def _wrong(clients: dict[str, RedisCluster]) -> list[str]:
    """Zones whose keys are not what was written."""
    found = zip(NAMES, _at_once(_read, clients.items()), strict=True)
    return [name for name, values in found if values != _values(name)]


def _at_once(act: Callable[[T], U], each: Iterable[T]) -> list[U]:
    """What `act` returns of each: a client whose agent has gone waits for seconds."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(act, each))


def _memory_mib(client: RedisCluster) -> list[int]:
    """Resident memory of each agent."""
    told = client.info("memory", target_nodes=RedisCluster.ALL_NODES)
    return [int(each["used_memory_rss"]) >> 20 for each in told.values()]


def _uids(installed: Installed, selector: str) -> dict[str, str]:
    """Pod -> uid."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in installed.pods(selector)
        if "deletionTimestamp" not in pod["metadata"]
    }


def _restarts(installed: Installed) -> int:
    """How often containers of agents and operators were started again in their pods."""
    return sum(
        container["restartCount"]
        for selector in (AGENTS, OPERATORS)
        for pod in installed.pods(selector)
        for container in pod["status"].get("containerStatuses", [])
    )


def _lease(installed: Installed) -> tuple[str, int]:
    """Who leads, and how often that has changed."""
    spec = installed.get("lease", "quorate-operator")["spec"]
    return spec["holderIdentity"], spec.get("leaseTransitions", 0)
