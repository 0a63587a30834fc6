"""Agents with failure domains and weights, planner Staged: copies stay spread and shared out."""

from collections import Counter

import pytest

from quorate_cluster.agreement import stored_rows
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 16
AGENTS = {
    "agent-1": ("east", 1),
    "agent-2": ("east", 2),
    "agent-3": ("west", 1),
    "agent-4": ("west", 1),
    "agent-5": ("south", 1),
    "agent-6": ("east", 2),
}
"""Failure domain and weight.  Of three copies each domain has one, so its agents share out all
partitions by weight, whatever room there is elsewhere."""


def _start(cluster: Cluster, *names: str) -> None:
    for name in names:
        domain, weight = AGENTS[name]
        options = ["--failure-domain", domain, "--weight", str(weight)]
        cluster.define_agent(name, options=options).start(wait=False)
    for name in names:
        cluster.agents[name].wait_listening()


def _owners(cluster: Cluster) -> list[tuple[str, ...]]:
    """Of each partition, as the stored rows say."""
    rows = stored_rows(cluster.folder, cluster.zone("z")["metadata"]["uid"]).values()
    return [tuple(row.owners) for row in rows]


def _misplaced(cluster: Cluster, names: set[str]) -> list[str]:
    """What is wrong with where the copies are, when there are these agents; nothing at rest."""
    owners = _owners(cluster)
    found = [
        f"{each} in fewer than three domains"
        for each in owners
        if len({AGENTS[node][0] for node in each}) < 3
    ]
    copies = Counter(node for each in owners for node in each)
    for name in sorted(names | {*copies}):
        domain, weight = AGENTS[name]
        weights = sum(AGENTS[each][1] for each in names if AGENTS[each][0] == domain)
        share = PARTITIONS * weight / weights if name in names else 0
        if copies[name] != share and abs(copies[name] - share) >= 1:
            found.append(f"{name} owns {copies[name]} copies, its share is {share:.1f}")
    return found


def _wait_placed(cluster: Cluster, *names: str) -> None:
    """Until every copy is in its place, and stays there when nothing moves any more."""
    wait_until(
        lambda: not _misplaced(cluster, {*names}),
        f"place of every copy on {names}",
        60,
        lambda: (_misplaced(cluster, {*names}), _owners(cluster)),
    )
    cluster.wait_quiet("z")
    assert _misplaced(cluster, {*names}) == []
    conditions = cluster.zone("z")["status"]["conditions"]
    assert [each["status"] for each in conditions if each["type"] == "SpreadViolated"] == ["False"]


def test_copies_stay_in_their_domains_by_weight_when_an_agent_is_lost_and_replaced(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=0)
    _start(cluster, "agent-1", "agent-2", "agent-3", "agent-4", "agent-5")
    cluster.declare()
    zone = cluster.apply_zone("z", partitions=PARTITIONS, replicas=3, planner="Staged")
    assert zone["spec"]["planner"] == "Staged"

    with Workload(cluster, "z", writers=2, readers=1) as load:
        _wait_placed(cluster, "agent-1", "agent-2", "agent-3", "agent-4", "agent-5")
        load.wait_for_writes(50)

        cluster.agents["agent-2"].kill()
        _wait_placed(cluster, "agent-1", "agent-3", "agent-4", "agent-5")
        load.wait_for_writes(50)

        _start(cluster, "agent-6")
        left = ("agent-1", "agent-3", "agent-4", "agent-5", "agent-6")
        cluster.declare(*left)
        _wait_placed(cluster, *left)
        load.wait_for_writes(50)

    assert find_violations(load.writes, load.reads + load.read_back()) == []
    wait_until(
        lambda: {node["name"] for node in cluster.api.status()["nodes"]} == {*left},
        "end of the lost agent's record",
        say=cluster.api.status,
    )
