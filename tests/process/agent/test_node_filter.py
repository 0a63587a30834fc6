"""Agents with attributes: a zone's copies follow its filter while clients write."""

import pytest

from quorate_cluster.agreement import stored_rows
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

ATTRIBUTES = {"agent-1": "EU", "agent-2": "EU", "agent-3": "US", "agent-4": "US"}


def _owners(cluster: Cluster) -> set[str]:
    rows = stored_rows(cluster.folder, cluster.zone("z")["metadata"]["uid"]).values()
    return {node for row in rows for node in row.owners}


def _condition(cluster: Cluster, kind: str) -> str:
    conditions = cluster.zone("z")["status"]["conditions"]
    return str(next(each["status"] for each in conditions if each["type"] == kind))


def test_copies_follow_the_filter_and_none_is_lost_when_too_few_agents_match(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=0)
    for name, region in ATTRIBUTES.items():
        options = ["--attribute", f"region={region}", "--attribute", f"number={name[-1]}"]
        if name == "agent-4":
            options += ["--storage-profile", "nvme"]
        cluster.define_agent(name, options=options).start(wait=False)
    for name in ATTRIBUTES:
        cluster.agents[name].wait_listening()
    cluster.declare()
    spec = {"partitions": 8, "replicas": 2}
    zone = cluster.apply_zone("z", **spec, dataNodesFilter="$[?(@.region == 'EU')]")
    assert zone["status"]["dataNodes"] == ["agent-1", "agent-2"]
    assert _owners(cluster) == {"agent-1", "agent-2"}

    with Workload(cluster, "z", writers=2, readers=1) as load:
        load.wait_for_writes(50)
        cluster.apply_zone("z", **spec, dataNodesFilter="region!=EU")
        wait_until(lambda: _owners(cluster) == {"agent-3", "agent-4"}, "US", 60)
        assert _condition(cluster, "TooFewDataNodes") == "False"
        load.wait_for_writes(50)

        cluster.apply_zone("z", **spec, storageProfile="nvme")
        wait_until(lambda: _condition(cluster, "TooFewDataNodes") == "True", "TooFewDataNodes")
        cluster.wait_quiet("z")
        assert _owners(cluster) == {"agent-3", "agent-4"}
        assert _condition(cluster, "FullyReplicated") == "True"

        cluster.apply_zone("z", **spec, dataNodesFilter="$[?@.number < 3]")
        wait_until(lambda: _owners(cluster) == {"agent-1", "agent-2"}, "numbers", 60)
        load.wait_for_writes(50)

    assert find_violations(load.writes, load.reads + load.read_back()) == []
