"""Lost for good: a node with its volume, then a volume alone.  The other copies fill a new one."""

import time

import pytest

from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_documented.commands import commands_of, first_missing
from quorate_nodes.digests import digests
from quorate_nodes.installed import CLUSTER, ROOT, ZONE, Installed, is_ready
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
        assert f"agent {agent} is online: nothing is to be replaced" in online

        victim.power_off()
        first_day.wait(
            lambda: not is_ready(first_day.get("pod", pod["metadata"]["name"])),
            "a pod that Kubernetes takes for lost",
        )
        first_day.wait(lambda: _is_away(first_day, agent), "an agent that has left")
        began = time.monotonic()
        said = first_day.type(f"{_replace(agent)} --yes")
        assert f"claim {CLUSTER}-{agent} with its volume {volume} is deleted" in said
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
        former = volume_of(first_day, agent)
        began = time.monotonic()
        first_day.kubectl("delete", "pvc", f"{CLUSTER}-{agent}", "--wait=false")
        first_day.kubectl("delete", "pod", pod["metadata"]["name"])
        first_day.wait(lambda: volume_of(first_day, agent) not in ("", former), "another volume")
        clean(first_day, former)
        first_day.wait_whole(120)
        measured("a lost volume is filled", f"{time.monotonic() - began:.1f} s")
        pulses.wait_all_written_since(time.monotonic())
    assert volume_of(first_day, agent).startswith(victim.name)
    assert pulses.lost() == []
    assert first_day.unexpected(pulses) == []
    first_day.wait(lambda: are_equal(digests(first_day, ZONE)), "equal copies")


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
