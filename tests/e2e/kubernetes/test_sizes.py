"""`kubectl scale` of agents on real nodes: more and fewer under clients, none and again."""

import time

import pytest

from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses, key_in_each
from quorate_cluster.served import NotServed
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import CLUSTER, ZONE, Installed
from quorate_nodes.release.sizes import (
    MORE,
    THREE,
    agents_of,
    claims,
    scale,
    three_in_the_end,
    wait_size,
    zone_timer,
)

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(400)]

SCALE_UP_S = 10
"""Longer than the starts of three pods on three nodes are apart."""


def test_three_agents_become_six_and_three_again_and_no_command_fails(
    first_day: Installed, measured: Measured
) -> None:
    before = claims(first_day, THREE)
    with three_in_the_end(first_day):
        with Pulses(first_day, ZONE, keys_max=8) as pulses:
            began = time.monotonic()
            with zone_timer(first_day, "dataNodesAutoAdjustScaleUpSeconds", SCALE_UP_S):
                scale(first_day, 6)
                grown = _data_nodes_until(first_day, 6)
                wait_size(first_day, 6)
            assert grown == {3, 6}, "those that join within the time become data nodes together"
            grown_s = time.monotonic() - began
            pulses.wait_all_written_since(time.monotonic())
            of_six = claims(first_day, [*THREE, *MORE])
            assert before.items() < of_six.items()
            held = _held(first_day)
            zones = _zones(first_day)

            began = time.monotonic()
            scale(first_day, 3)
            wait_size(first_day, 3)
            shrunk_s = time.monotonic() - began
            pulses.wait_all_written_since(time.monotonic())
        measured(
            "3 agents to 6 to 3 on nodes under clients",
            f"{grown_s:.1f} s and {shrunk_s:.1f} s; failed commands {len(pulses.failed)}; a key"
            f" waits for at most {max(pulses.longest_gaps_s(0)):.2f} s",
        )
        stayed = agents_of(first_day)
        assert {zones[agent] for agent in stayed} == set(zones.values()), "one agent of each zone"
        for agent in held.keys() - set(stayed):
            other = next(each for each in stayed if zones[each] == zones[agent])
            assert (*held[agent], other) <= (*held[other], agent), "who held less has left"
        assert claims(first_day, [*THREE, *MORE]) == of_six, "claims are kept"
        assert are_equal(digests(first_day, ZONE))
        assert pulses.lost() == []
        assert first_day.unexpected(pulses) == []
        if pulses.failed:
            raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def test_at_zero_nothing_runs_and_at_three_all_rows_are_there_again(
    first_day: Installed, measured: Measured
) -> None:
    client = first_day.client(ZONE)
    keys = key_in_each(first_day.zone(ZONE)["spec"]["partitions"])
    for key in keys:
        assert client.set(key, f"value of {key}")
    first_day.wait_whole()
    before, kept = digests(first_day, ZONE), claims(first_day, THREE)
    assert all(rows > 0 for copies in before.values() for rows, _ in copies.values())

    scale(first_day, 0)
    first_day.wait(lambda: not first_day.pods(), "no pod")
    first_day.wait(
        lambda: first_day.condition("zone", ZONE, "Available")["status"] == "False", "told"
    )
    assert claims(first_day, THREE) == kept

    began = time.monotonic()
    scale(first_day, 3)
    first_day.wait_whole(120)
    measured("0 agents to 3 on nodes, whole", f"{time.monotonic() - began:.1f} s")
    assert claims(first_day, THREE) == kept
    assert not +first_day.full_copies(), "each agent has the volume that it had"
    assert digests(first_day, ZONE) == before
    client = first_day.client(ZONE)
    assert [client.get(key) for key in keys] == [f"value of {key}".encode() for key in keys]


def _data_nodes_until(installed: Installed, wanted: int) -> set[int]:
    """Wait for so many data nodes of the zone; return how many it was seen to have."""
    seen: set[int] = set()

    def are_there() -> bool:
        seen.add(len(installed.zone(ZONE)["status"]["dataNodes"]))
        return wanted in seen

    installed.wait(are_there, f"{wanted} data nodes", 120)
    return seen


def _held(installed: Installed) -> dict[str, tuple[int, int]]:
    """agent -> its copies and primaries, by the StorageCluster's status."""
    members = installed.get("storagecluster", CLUSTER)["status"]["members"]
    return {each["name"]: (each["owners"], each["primaries"]) for each in members}


def _zones(installed: Installed) -> dict[str, str]:
    """agent -> the zone of the node that its pod is on."""
    labels = {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for node in installed.nodes.get("nodes")["items"]
    }
    return {
        pod["metadata"]["labels"]["quorate.io/agent"]: labels[pod["spec"]["nodeName"]]
        for pod in installed.pods()
    }
