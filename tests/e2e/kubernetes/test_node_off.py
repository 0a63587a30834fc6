"""A node loses its power: an agent there, and the operator that leads."""

import time

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_nodes.release.installed import OPERATORS, ZONE, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def test_the_others_go_on_and_the_agent_comes_back_with_its_node(
    first_day: Installed, measured: Measured
) -> None:
    nodes = first_day.nodes
    name = _node_of_the_leader(first_day)
    victim = nodes.node(name)
    (pod,) = [pod for pod in first_day.pods() if pod["spec"]["nodeName"] == name]
    pod_name = pod["metadata"]["name"]
    others = [node.number for node in nodes.nodes if node is not victim]
    nodes.network.reach_services_by(others[0])
    copied = first_day.full_copies()
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        began = time.monotonic()
        victim.power_off()
        first_day.wait(lambda: _node_of_the_leader(first_day) != name, "another leader")
        led_s = time.monotonic() - began
        pulses.wait_all_written_since(time.monotonic(), 90)
        gap_s = max(pulses.longest_gaps_s(began))
        first_day.wait(lambda: len(nodes.ready_nodes()) == 2, "a node that is not ready")
        # Nothing there can end it: it stays so until the node is back.
        first_day.wait(
            lambda: "deletionTimestamp" in first_day.get("pod", pod_name)["metadata"], "eviction"
        )
        pulses.wait_all_written_since(time.monotonic())

        on = time.monotonic()
        victim.power_on()
        nodes.wait_nodes_ready()
        first_day.wait_whole(120)
        back_s = time.monotonic() - on
        pulses.wait_all_written_since(time.monotonic())
    measured(
        "node off, with an agent and the operator that leads",
        f"another leads after {led_s:.1f} s, keys not writable for at most {gap_s:.1f} s; whole"
        f" {back_s:.1f} s after the node is on",
    )
    (again,) = [pod for pod in first_day.pods() if pod["spec"]["nodeName"] == name]
    assert again["metadata"]["name"] == pod_name
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    assert first_day.full_copies() - copied == {}, "it goes on with its volume"
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []


def _node_of_the_leader(installed: Installed) -> str:
    leader = installed.leader()
    found = [pod for pod in installed.pods(OPERATORS) if pod["metadata"]["name"] == leader]
    return found[0]["spec"]["nodeName"] if found else ""
