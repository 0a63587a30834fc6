"""Lost for good: a node with its volume, then a volume alone.  The other copies fill a new one."""

import time
from collections import Counter

import pytest

from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_documented.commands import commands_of, first_missing
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import CLUSTER, ROOT, ZONE, Installed, is_ready
from quorate_nodes.release.sizes import scale, three_in_the_end, wait_size, zone_timer
from quorate_nodes.volumes import claim_of, clean, volume_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

MANUAL = ROOT / "docs" / "operations.md"
DOCUMENTED = "agent-2"
"""The agent of the manual's example."""


def test_a_lost_node_is_replaced_and_then_a_lost_volume_is_filled(
    first_day: Installed, measured: Measured
) -> None:
    nodes = first_day.nodes
    (pod,) = [
        each
        for each in first_day.pods()
        if each["spec"]["nodeName"] != _node_of(first_day, first_day.leader())
    ][:1]
    agent = pod["metadata"]["labels"]["quorate.io/agent"]
    victim = nodes.node(pod["spec"]["nodeName"])
    claim, volume = claim_of(first_day, agent), volume_of(first_day, agent)
    store = _store_of(first_day, agent)
    nodes.network.reach_services_by(*[n.number for n in nodes.nodes if n is not victim][:1])
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        online = first_day.type(f"{_replace(agent)} --yes", code=1)
        assert f"agent {agent} is online and needs no replacement" in online

        victim.power_off()
        first_day.wait(
            lambda: not is_ready(first_day.get("pod", pod["metadata"]["name"])),
            "a pod that Kubernetes takes for lost",
        )
        first_day.wait(lambda: _is_away(first_day, agent), "an agent that has left")
        began = time.monotonic()
        said = first_day.type(f"{_replace(agent)} --yes")
        assert f"claim {CLUSTER}-{agent} with its volume {volume} will be deleted" in said
        assert _missing_in_manual(agent, said) == ""
        first_day.wait_whole(120)
        measured("replace of an agent on a lost node", f"{time.monotonic() - began:.1f} s")
        pulses.wait_all_written_since(time.monotonic())

        again = first_day.get("pod", pod["metadata"]["name"])
        assert again["spec"]["nodeName"] != victim.name
        assert claim_of(first_day, agent)["metadata"]["uid"] != claim["metadata"]["uid"]
        assert volume_of(first_day, agent) != volume
        assert _store_of(first_day, agent) != store

        victim.power_on()
        nodes.wait_nodes_ready()
        clean(first_day, volume)

        # Now nothing but a volume: the place of the agent is on the node that has no other.
        measured("a lost volume is filled", f"{_lose_volume(first_day, agent):.1f} s")
        pulses.wait_all_written_since(time.monotonic())
    assert volume_of(first_day, agent).startswith(victim.name)
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []
    first_day.wait(lambda: are_equal(digests(first_day, ZONE)), "equal copies")


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_a_spare_takes_over_where_a_node_is_deleted_for_good(
    first_day: Installed, measured: Measured
) -> None:
    """Four agents with three copies: they are three again before anybody has done anything."""
    nodes = first_day.nodes
    with (
        three_in_the_end(first_day),
        zone_timer(first_day, "dataNodesAutoAdjustScaleDownSeconds", 5),
    ):
        scale(first_day, 4)
        wait_size(first_day, 4)
        on_node = Counter(pod["spec"]["nodeName"] for pod in first_day.pods())
        (pod,) = [
            each
            for each in first_day.pods()
            if on_node[each["spec"]["nodeName"]] == 1
            and each["spec"]["nodeName"] != _node_of(first_day, first_day.leader())
        ][:1]
        agent, name = pod["metadata"]["labels"]["quorate.io/agent"], pod["metadata"]["name"]
        victim = nodes.node(pod["spec"]["nodeName"])
        volume, store = volume_of(first_day, agent), _store_of(first_day, agent)
        nodes.network.reach_services_by(*[n.number for n in nodes.nodes if n is not victim][:1])
        with Pulses(first_day, ZONE, keys_max=8) as pulses:
            began = time.monotonic()
            victim.power_off()
            first_day.wait(lambda: _is_away(first_day, agent), "an agent that has left")
            first_day.wait(lambda: _has_three_copies(first_day, agent), "copies elsewhere", 120)
            moved_s = time.monotonic() - began
            pulses.wait_all_written_since(time.monotonic())

            nodes.kubectl("delete", "node", victim.name)
            first_day.wait(lambda: _told_of(first_day, name) == "Unschedulable", "the reason", 120)
            said = first_day.type(f"{_replace(agent)} --yes")
            assert f"pod {name} (on no node) will be deleted at once" in said
            wait_size(first_day, 4)
            assert _store_of(first_day, agent) != store
            pulses.wait_all_written_since(time.monotonic())

            victim.power_on()
            nodes.wait_nodes_ready()
            clean(first_day, volume)
            _lose_volume(first_day, agent, agents=4)
        measured("copies of a node gone for good, on a spare agent", f"{moved_s:.1f} s")
    assert volume_of(first_day, agent).startswith(victim.name)
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []
    first_day.wait(lambda: are_equal(digests(first_day, ZONE)), "equal copies")


def _has_three_copies(installed: Installed, without: str) -> bool:
    members = installed.get("storagecluster", CLUSTER)["status"]["members"]
    owners = {each["name"]: each["owners"] for each in members}
    whole = installed.condition("zone", ZONE, "FullyReplicated")["status"] == "True"
    return whole and owners[without] == 0


def _told_of(installed: Installed, pod: str) -> str:
    """Why the pod does not run, by the cluster's status."""
    told = installed.get("storagecluster", CLUSTER)["status"].get("pods", [])
    return next((str(each["reason"]) for each in told if each["name"] == pod), "")


def _lose_volume(installed: Installed, agent: str, agents: int = 3) -> float:
    """Delete claim and pod, and erase the volume; seconds until another one is filled."""
    former = volume_of(installed, agent)
    began = time.monotonic()
    installed.kubectl("delete", "pvc", f"{CLUSTER}-{agent}", "--wait=false")
    installed.kubectl("delete", "pod", f"{CLUSTER}-{agent}-0")
    installed.wait(lambda: volume_of(installed, agent) not in ("", former), "another volume")
    clean(installed, former)
    installed.wait_whole(120, agents)
    return time.monotonic() - began


def _replace(agent: str) -> str:
    """The command of the manual."""
    (command,) = [
        each.text for each in commands_of(MANUAL.read_text()) if "quorate replace" in each.text
    ]
    assert f"replace {DOCUMENTED} " in command
    return command.replace(DOCUMENTED, agent).replace(" --yes", "")


def _missing_in_manual(agent: str, said: str) -> str:
    """What the manual shows of it and it did not say."""
    (output,) = [
        each.output for each in commands_of(MANUAL.read_text()) if "quorate replace" in each.text
    ]
    assert output
    return first_missing([line.replace(DOCUMENTED, agent) for line in output], said)


def _node_of(installed: Installed, pod: str) -> str:
    return str(installed.get("pod", pod)["spec"]["nodeName"])


def _is_away(installed: Installed, agent: str) -> bool:
    members = installed.get("storagecluster", CLUSTER)["status"]["members"]
    return any((each["name"], each["state"]) == (agent, "Offline") for each in members)


def _store_of(installed: Installed, agent: str) -> str:
    members = installed.get("storagecluster", CLUSTER)["status"]["members"]
    return next(str(each["storeId"]) for each in members if each["name"] == agent)
