"""Nodes are cordoned and drained, two at once, with stock clients that write all the time."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_cluster.served import NotServed
from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import (
    CLUSTER,
    REGISTRY,
    VERSION,
    ZONE,
    Installed,
    condition_of,
    is_ready,
)
from quorate_nodes.watching.pod_watch import PodWatch

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(500)]

DRAIN = "--ignore-daemonsets --delete-emptydir-data --timeout=200s"
UPGRADE = "helm upgrade quorate charts/quorate --namespace storage --reuse-values"
LEADS = UPGRADE + " --set 'rbac.clusters={%s}'"
ROAMING = "roaming"
CARTS = "carts"


def test_a_cordoned_node_has_no_primaries_and_of_two_drains_the_second_waits_for_a_local_volume(
    first_day: Installed, measured: Measured
) -> None:
    by_node = {pod["spec"]["nodeName"]: pod for pod in first_day.pods()}
    assert len(by_node) == 3
    first, second, _ = sorted(by_node)
    agent, other = (_agent(by_node[node]) for node in (first, second))
    with _usable(first_day), Pulses(first_day, ZONE, keys_max=8) as pulses:
        with PodWatch(first_day) as watch:
            began = time.monotonic()
            first_day.nodes.kubectl("cordon", first)
            first_day.wait(lambda: _primaries(first_day)[agent] == 0, "no primary there")
            measured("cordon to no primary", f"{time.monotonic() - began:.1f} s")
            assert _primaries(first_day)[other] > 0
            assert not pulses.failed

            with _drain(first_day, first) as one, _drain(first_day, second) as two:
                # Either may be first; its pod cannot go anywhere else.
                first_day.wait(
                    lambda: (
                        [one.poll(), two.poll()].count(0) == 1 and len(_pending(first_day)) == 1
                    ),
                    "one node drained, and its agent's pod without a place",
                    90,
                )
                done, waits = (first, second) if one.poll() == 0 else (second, first)
                waiting = two if one.poll() == 0 else one
                gone = _agent(by_node[done])
                expected = f"offline: {gone}; partitions of Zone {ZONE} need all their other voters"
                first_day.wait(
                    lambda: expected in _evictions(first_day)[1], "a condition that says why"
                )
                status, message = _evictions(first_day)
                assert status == "False"
                pod = by_node[done]["metadata"]["name"]
                assert f"pod {pod}: Unschedulable" in message
                first_day.wait(lambda: _told(first_day, pod), "an Event that says the same")
                assert waiting.poll() is None
                assert is_ready(first_day.get("pod", by_node[waits]["metadata"]["name"]))

                began = time.monotonic()
                first_day.nodes.kubectl("uncordon", done)
                assert waiting.wait(120) == 0
                measured(
                    "uncordon to the end of the other drain", f"{time.monotonic() - began:.1f} s"
                )
        assert watch.away_max == 1, watch.seen
        first_day.nodes.kubectl("uncordon", waits)
        first_day.wait_whole(120)
        first_day.wait(lambda: _evictions(first_day)[0] == "True", "evictions allowed again")
        first_day.wait(lambda: min(first_day.primaries()) > 0, "primaries everywhere")
        pulses.wait_all_written_since(time.monotonic())
    measured("cordon and two drains, local volumes", f"failed commands {len(pulses.failed)}")
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []
    if pulses.failed:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def test_two_drains_at_once_end_where_volumes_follow_their_pods(
    first_day: Installed, measured: Measured
) -> None:
    """All three agents end on one node; each had caught up before the next one went."""
    first_day.kubectl("scale", "storagecluster", CLUSTER, "--replicas=0")
    with _usable(first_day), _roaming(first_day):
        nodes = sorted({pod["spec"]["nodeName"] for pod in first_day.pods()})
        assert len(nodes) == 3
        left, copied = nodes[2], first_day.full_copies()
        with (
            Pulses(first_day, CARTS, keys_max=8) as pulses,
            PodWatch(first_day) as watch,
            _drain(first_day, nodes[0]) as one,
            _drain(first_day, nodes[1]) as two,
        ):
            began = time.monotonic()
            assert (one.wait(220), two.wait(220)) == (0, 0)
            measured("two drains, volumes that follow", f"{time.monotonic() - began:.1f} s")
            first_day.wait(lambda: _is_whole(first_day, ROAMING, CARTS), "a whole cluster", 90)
            pulses.wait_all_written_since(time.monotonic())
        assert {pod["spec"]["nodeName"] for pod in first_day.pods()} == {left}
        assert watch.away_max == 1, watch.seen
        assert first_day.full_copies() - copied == {}, "each goes on with its volume"
        measured("two drains, volumes that follow", f"failed commands {len(pulses.failed)}")
        assert pulses.lost() == []
        assert first_day.unexpected(pulses) == []
        if pulses.failed:
            raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def _agent(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["quorate.io/agent"])


def _primaries(installed: Installed) -> dict[str, int]:
    members = installed.get("storagecluster", CLUSTER)["status"]["members"]
    return {each["name"]: each["primaries"] for each in members}


def _evictions(installed: Installed) -> tuple[str, str]:
    """Status and message of the condition."""
    found = installed.condition("storagecluster", CLUSTER, "EvictionsAllowed")
    return found.get("status", ""), found.get("message", "")


def _told(installed: Installed, pod: str) -> bool:
    events = installed.get("events")["items"]
    return any(e["reason"] == "EvictionsRefused" and pod in e["message"] for e in events)


def _pending(installed: Installed) -> list[str]:
    """Pods of agents that the scheduler has no node for."""
    return [
        pod["metadata"]["name"]
        for pod in installed.pods()
        if condition_of(pod, "PodScheduled").get("status") == "False"
    ]


@contextmanager
def _drain(installed: Installed, node: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kubectl drain` of a node, until it has ended."""
    command = ["kubectl", "drain", node, *DRAIN.split()]
    path = installed.environment["PATH"].partition(":")[0]
    command[0] = f"{path}/kubectl"
    with subprocess.Popen(command, env=installed.environment) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _usable(installed: Installed) -> Iterator[None]:
    """Every node takes pods again in the end, and the cluster of the manual is whole."""
    try:
        yield
    finally:
        for node in installed.nodes.nodes:
            installed.nodes.kubectl("uncordon", node.name)
        installed.kubectl("scale", "storagecluster", CLUSTER, "--replicas=3")
        installed.wait_whole(120)


@contextmanager
def _roaming(installed: Installed) -> Iterator[None]:
    """A cluster whose volumes every node reaches, and a zone of it with three copies."""
    installed.type(LEADS % f"{CLUSTER},{ROAMING}")
    folder = installed.nodes.work_folder(ROAMING)
    volumes = [_volume(f"{ROAMING}-{number}", str(folder / str(number))) for number in (1, 2, 3)]
    for number in (1, 2, 3):
        (folder / str(number)).mkdir()
        (folder / str(number)).chmod(0o777)  # a kubelet gives such a volume to no group
    installed.nodes.kubectl("apply", "--filename=-", stdin=_list(*volumes))
    image = f"{REGISTRY}/quorate-agent:{VERSION}"
    managed = {
        "replicas": 3,
        "image": image,
        "storage": {"size": "1Gi", "className": ROAMING},
    }
    goes = {"deletionPolicy": "Delete"}
    zone = {"clusterRef": {"name": ROAMING}, "partitions": 64, "replicas": 3}
    installed.kubectl(
        "apply",
        "--filename=-",
        stdin=_list(
            _declared("StorageCluster", ROAMING, {"managed": managed, **goes}),
            _declared("Zone", CARTS, {**zone, **goes}),
        ),
    )
    try:
        installed.wait(lambda: not _pods_of(installed, CLUSTER), "no pod of the other cluster")
        installed.wait(lambda: _is_whole(installed, ROAMING, CARTS), "a whole cluster", 120)
        yield
    finally:
        installed.kubectl("delete", "zone", CARTS)
        installed.kubectl("delete", "storagecluster", ROAMING)
        installed.wait(lambda: not _pods_of(installed, ROAMING), "none of its pods")
        chosen = f"--selector=quorate.io/cluster={ROAMING}"
        installed.kubectl("delete", "persistentvolumeclaims", chosen)
        names = [each["metadata"]["name"] for each in volumes]
        installed.nodes.kubectl("delete", "persistentvolume", *names)
        installed.type(LEADS % CLUSTER)


def _pods_of(installed: Installed, cluster: str) -> list[Json]:
    return installed.pods(f"--selector=quorate.io/cluster={cluster}")


def _is_whole(installed: Installed, cluster: str, zone: str) -> bool:
    """Whether three agents are ready, hold everything, and one may be evicted."""
    found = installed.get("storagecluster", cluster)
    wanted = dict.fromkeys(("AgentsUpdated", "EvictionsAllowed", "Ready"), "True")
    copies = dict.fromkeys(("Available", "FullyReplicated"), "True")
    return [is_ready(pod) for pod in _pods_of(installed, cluster)] == [True] * 3 and all(
        condition_of(of, kind).get("status") == told
        for of, all_wanted in ((found, wanted), (installed.zone(zone), copies))
        for kind, told in all_wanted.items()
    )


def _volume(name: str, path: str) -> Json:
    """A folder that all nodes of this machine have."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": ROAMING,
            "hostPath": {"path": path},
        },
    }


def _declared(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name}
    return {"apiVersion": "quorate.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _list(*items: Json) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
