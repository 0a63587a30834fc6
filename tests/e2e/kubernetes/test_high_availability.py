"""Two of three nodes lose their power: a zone in HIGH_AVAILABILITY narrows to the third and goes
on, one in STRONG_CONSISTENCY waits for the majority and loses nothing."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from redis.cluster import RedisCluster

from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses, key_in_each
from quorate_nodes.cluster import Json
from quorate_nodes.node import Node
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import CLUSTER, OPERATORS, ZONE, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(600)]

LIVELY = "lively"
PARTITIONS = 8
DETECTION_S = 3
TIMEOUT_S = 3
NOMINAL_S = DETECTION_S + TIMEOUT_S + 2
"""Until writes go on, on a machine that does nothing else."""
WRITTEN_S_MAX = 30
HERE = "--namespace=storage"


def test_a_lost_majority_is_a_pause_in_one_zone_and_waited_for_in_the_other(
    first_day: Installed, measured: Measured
) -> None:
    nodes = first_day.nodes
    name = _node_of_the_leader(first_day)
    survivor = nodes.node(name)
    victims = [node for node in nodes.nodes if node is not survivor]
    nodes.network.reach_services_by(survivor.number)
    strong = first_day.client(ZONE)
    keys = key_in_each(first_day.zone(ZONE)["spec"]["partitions"])
    for key in keys:
        assert strong.set(key, f"before {key}")

    with _zone(first_day):
        way_in = _Survivor(first_day, name)
        with Pulses(way_in, LIVELY, keys_max=8, socket_timeout_s=2) as pulses:
            began = time.monotonic()
            with ThreadPoolExecutor(len(victims)) as pool:
                [*pool.map(Node.power_off, victims)]
            gone = time.monotonic()
            pulses.wait_all_written_since(gone, WRITTEN_S_MAX)
            gap_s = max(pulses.longest_gaps_s(began))
            first_day.wait(lambda: first_day.zone_is(LIVELY, "DataLossAccepted"), "accepted loss")
            first_day.wait(lambda: first_day.zone_is(LIVELY, "Available"), "a zone that serves")
            assert _events(first_day, LIVELY, "DataLossAccepted")
            assert _node_of_the_leader(first_day) == name

            first_day.wait(lambda: not first_day.zone_is(ZONE, "Available"), "a zone that waits")
            assert not _events(first_day, ZONE, "DataLossAccepted"), "nothing is reset by itself"
            with pytest.raises(CLIENT_ERRORS):
                strong.set(keys[0], "without a majority")
            pulses.wait_all_written_since(time.monotonic())

            on = time.monotonic()
            for victim in victims:
                victim.power_on()
            nodes.wait_nodes_ready()
            first_day.wait_whole(180)
            first_day.wait(lambda: first_day.zone_is(LIVELY, "FullyReplicated"), "copies", 120)
            first_day.wait(
                lambda: not first_day.zone_is(LIVELY, "DataLossAccepted"), "an end of it"
            )
            back_s = time.monotonic() - on
            pulses.wait_all_written_since(time.monotonic())
        measured(
            "two of three nodes off, in HIGH_AVAILABILITY",
            f"keys not writable for at most {gap_s:.1f} s (nominal {NOMINAL_S} s); three copies"
            f" {back_s:.1f} s after the nodes are on",
        )
        assert pulses.lost() == []
        assert first_day.unexpected(pulses) == []
        first_day.wait(lambda: are_equal(digests(first_day, LIVELY)), "equal copies")
        _check_aside(first_day)
    with first_day.client(ZONE) as client:
        found = {key: client.get(key) for key in keys}
    unknown = found.pop(keys[0])
    assert found == {key: f"before {key}".encode() for key in keys[1:]}
    assert unknown in (f"before {keys[0]}".encode(), b"without a majority")
    first_day.wait(lambda: are_equal(digests(first_day, ZONE)), "equal copies")


class _Survivor:
    """The way in for clients by one node's agent; a Service also leads to nodes that are off."""

    def __init__(self, installed: Installed, node: str) -> None:
        (pod,) = [each for each in installed.pods() if each["spec"]["nodeName"] == node]
        self._installed = installed
        self._agent = pod["metadata"]["labels"]["quorate.io/agent"]
        self._host = pod["status"]["podIP"]

    def zone(self, name: str) -> Json:
        return self._installed.zone(name)

    def client(self, zone: str, **options: Any) -> RedisCluster:
        port = self.zone(zone)["status"]["ports"][self._agent]
        settings = {
            "socket_timeout": 8,
            "socket_connect_timeout": 2,
            "dynamic_startup_nodes": False,
        }
        return RedisCluster(host=self._host, port=port, **{**settings, **options})


def _check_aside(installed: Installed) -> None:
    """`kubectl quorate aside` asks every agent, and knows what the zone's status counts."""
    listed = json.loads(
        installed.type(f"kubectl quorate aside list {HERE} {LIVELY} --json").partition("\n\n")[0]
    )
    assert listed["unasked"] == {}
    installed.wait(
        lambda: bool(installed.zone(LIVELY)["status"].get("setAside")) == bool(listed["aside"]),
        f"a status that counts {listed}",
    )
    if not listed["aside"]:
        said = installed.type(f"kubectl quorate aside list {HERE} {LIVELY}")
        assert "nothing is set aside" in said
        none = installed.type(f"kubectl quorate aside show {HERE} {LIVELY} 0", code=1)
        assert f"zone {LIVELY}, partition 0: nothing is set aside" in none
        return
    partition = listed["aside"][0]["partition"]
    shown = installed.type(f"kubectl quorate aside show {HERE} {LIVELY} {partition}")
    assert f"zone {LIVELY}, partition {partition}, " in shown


@contextmanager
def _zone(installed: Installed) -> Iterator[None]:
    """A zone in HIGH_AVAILABILITY on all agents; in the end it goes with its data."""
    spec = {
        "clusterRef": {"name": CLUSTER},
        "partitions": PARTITIONS,
        "replicas": 3,
        "consistencyMode": "HIGH_AVAILABILITY",
        "partitionDistributionResetTimeoutSeconds": TIMEOUT_S,
        "deletionPolicy": "Delete",
    }
    with installed.zone_made(LIVELY, spec):
        try:
            yield
        finally:
            installed.nodes.power_all_on()


def _events(installed: Installed, zone: str, reason: str) -> list[str]:
    of = f"involvedObject.name={zone},involvedObject.kind=Zone,reason={reason}"
    found = installed.get("events", f"--field-selector={of}")["items"]
    return [str(each["message"]) for each in found]


def _node_of_the_leader(installed: Installed) -> str:
    leader = installed.leader()
    found = [pod for pod in installed.pods(OPERATORS) if pod["metadata"]["name"] == leader]
    return str(found[0]["spec"]["nodeName"]) if found else ""
