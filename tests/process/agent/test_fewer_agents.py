"""One agent less: what it holds is elsewhere before it is let go, and no command fails."""

import re

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.served import assert_served
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]


def _nodes(cluster: Cluster) -> dict[str, dict[str, object]]:
    return {node["name"]: node for node in cluster.api.status()["nodes"]}


def _wait_left(cluster: Cluster, *names: str) -> None:
    """Until these are registered and nobody else is."""
    wait_until(
        lambda: {*_nodes(cluster)} == {*names}, f"{names} alone", 60, lambda: _nodes(cluster)
    )


def test_an_address_that_is_taken_back_has_its_agent_drained_first(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=4)
    cluster.apply_zone("z", partitions=32)
    client = cluster.client("z")
    for number in range(500):
        client.set(f"key-{number}", number)
    with Pulses(cluster, "z") as pulses:
        cluster.declare("agent-1", "agent-2", "agent-3")
        _wait_left(cluster, "agent-1", "agent-2", "agent-3")
        # Whole again before the process ends.
        assert cluster.zone_status("z")["missing_copies"] == {}
        cluster.agents["agent-4"].terminate()
        cluster.wait_quiet("z")

    assert pulses.lost() == []
    assert pulses.undocumented() == []
    assert [int(client.get(f"key-{number}") or -1) for number in range(500)] == [*range(500)]
    left = re.findall('[^"]*has left.*', cluster.operator.log.read_text())
    assert_served(cluster, [*pulses.failed, *left], ended=["agent-4"])


def test_one_agent_less_than_copies_are_wanted_stays_a_member(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z")

    cluster.declare("agent-1", "agent-2")

    wait_until(
        lambda: "stays a member" in cluster.operator.log.read_text(),
        "refusal to drain",
        say=cluster.operator.log_tail,
    )
    assert _nodes(cluster)["agent-3"]["state"] == "Online"
    cluster.wait_quiet("z")


def test_draining_goes_on_under_a_new_master_and_ends_when_the_address_is_back(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=4)
    cluster.apply_zone("z", partitions=32)
    cluster.declare("agent-1", "agent-2", "agent-3")
    wait_until(lambda: _nodes(cluster)["agent-4"]["state"] == "Draining", "draining agent-4")

    cluster.operator.kill()
    cluster.operator.start()

    _wait_left(cluster, "agent-1", "agent-2", "agent-3")
    cluster.declare()
    wait_until(lambda: _nodes(cluster)["agent-4"]["primaries"] == 8, "primaries on agent-4", 60)
    assert _nodes(cluster)["agent-4"]["state"] == "Online"
