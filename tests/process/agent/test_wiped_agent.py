"""An agent's folder is gone, copied or never comes back: who votes, who takes its place."""

import shutil
import time

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate_cluster.agreement import stored_rows
from quorate_cluster.changes import grow
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.operator_api import Json
from quorate_cluster.processes import Agent
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 8
DELAY_S = 10


def _rows(cluster: Cluster) -> list[PartitionRow]:
    return list(stored_rows(cluster.folder, cluster.zone("z")["metadata"]["uid"]).values())


def _votes(cluster: Cluster, node: str) -> int:
    return sum(node in row.voter_nodes for row in _rows(cluster))


def _node(cluster: Cluster, name: str) -> Json:
    return next(node for node in cluster.api.status()["nodes"] if node["name"] == name)


def _said(cluster: Cluster, kind: str) -> str:
    conditions = cluster.zone("z")["status"]["conditions"]
    return next(str(each["message"]) for each in conditions if each["type"] == kind)


def _start_with_data(start_cluster: StartCluster) -> Cluster:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS, dataNodesAutoAdjustScaleDownSeconds=DELAY_S)
    return cluster


def _wipe(agent: Agent) -> None:
    agent.kill()
    shutil.rmtree(agent.data)
    agent.start()


def test_a_wiped_agent_loses_its_old_votes_and_is_given_new_copies(
    start_cluster: StartCluster,
) -> None:
    cluster = _start_with_data(start_cluster)
    wiped = cluster.agents["agent-1"]
    old = _node(cluster, "agent-1")["store"]
    sizes: set[int] = set()

    def stores() -> set[str]:
        rows = _rows(cluster)
        sizes.update(len(row.voters) for row in rows)
        return {v.store for row in rows for v in row.voters if v.node == "agent-1"}

    with Workload(cluster, "z") as load:
        load.wait_for_writes(300)
        _wipe(wiped)
        cluster.wait_online("agent-1")
        wait_until(lambda: stores() == {_node(cluster, "agent-1")["store"]}, "new votes", 60)
        cluster.wait_quiet("z")
        load.wait_for_writes(300)

    assert "agent-1 came back with a new store" in cluster.operator.log_tail(400)
    assert _node(cluster, "agent-1")["store"] != old
    assert sizes <= {2, 3}, "reduced by one, then back"
    assert _node(cluster, "agent-1")["owners"] == _votes(cluster, "agent-1") == PARTITIONS
    assert find_violations(load.writes, load.reads + load.read_back()) == []


def test_agents_of_a_zone_in_memory_restart_one_by_one_and_nothing_is_lost(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS, storage="InMemory")
    with Workload(cluster, "z") as load:
        for agent in list(cluster.agents.values()):
            load.wait_for_writes(200)
            agent.kill()
            agent.start()
            cluster.wait_online(agent.name)
            cluster.wait_quiet("z", 60)

    assert all(len(row.owners) == 3 for row in _rows(cluster))
    assert find_violations(load.writes, load.reads + load.read_back()) == []


def test_a_zone_in_memory_whose_agents_all_restart_is_lost_and_says_so(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS, storage="InMemory", onAllCopiesLost="Wait")
    for agent in cluster.agents.values():
        agent.kill()
    for agent in cluster.agents.values():
        agent.start()
    wait_until(lambda: "8 of them are LOST" in _said(cluster, "Available"), "the loss", 30)

    assert "begin again without data (`quorate recover reopen`" in _said(cluster, "Available")


def test_an_agent_lost_for_good_is_replaced_by_a_spare_after_the_delay(
    start_cluster: StartCluster,
) -> None:
    cluster = _start_with_data(start_cluster)
    grow(cluster)
    victim = max(
        (each for each in cluster.agents.values() if each.name != "agent-4"),
        key=lambda each: _votes(cluster, each.name),
    )
    votes = _votes(cluster, victim.name)
    assert votes
    with Workload(cluster, "z") as load:
        load.wait_for_writes(300)
        began = time.monotonic()
        victim.kill()
        # The delay is measured by the operator, from when it knows: never sooner than from here.
        while time.monotonic() - began < DELAY_S - 1:
            assert _votes(cluster, victim.name) == votes
            time.sleep(0.2)
        wait_until(lambda: _votes(cluster, victim.name) == 0, "its votes given to others", 60)
        cluster.wait_quiet("z")

    assert find_violations(load.writes, load.reads + load.read_back()) == []
    assert all(len(row.voters) == 3 and None not in row.replicas for row in _rows(cluster))


def test_without_a_spare_a_lost_agent_stays_a_voter_and_returns_as_one(
    start_cluster: StartCluster,
) -> None:
    cluster = _start_with_data(start_cluster)
    lost = cluster.agents["agent-2"]
    with Workload(cluster, "z") as load:
        load.wait_for_writes(300)
        lost.kill()
        wait_until(
            lambda: "another agent without a copy" in _said(cluster, "FullyReplicated"),
            "what would help",
            DELAY_S + 30,
        )

        assert _votes(cluster, "agent-2") == PARTITIONS
        assert _node(cluster, "agent-2")["owners"] == 0
        lost.start()
        cluster.wait_quiet("z")

    assert _node(cluster, "agent-2")["owners"] == PARTITIONS
    assert find_violations(load.writes, load.reads + load.read_back()) == []


def test_an_older_image_of_a_folder_is_set_aside_and_its_agent_is_new(
    start_cluster: StartCluster,
) -> None:
    """The image counts up to the very incarnation that the lost process had."""
    cluster = _start_with_data(start_cluster)
    agent = cluster.agents["agent-3"]
    agent.terminate()
    image = cluster.folder / "image"
    shutil.copytree(agent.data, image)
    agent.start()
    cluster.wait_quiet("z")
    old = _node(cluster, "agent-3")
    client = cluster.client("z")
    client.set("key", "written after the image")
    agent.kill()
    shutil.rmtree(agent.data)
    shutil.move(image, agent.data)

    agent.start(wait=False)  # it ends and starts anew over an empty folder, as the same process
    wait_until(lambda: _node(cluster, "agent-3")["store"] != old["store"], "a new store", 60)

    assert f"incarnation {old['incarnation']} of store {old['store']}" in agent.log_tail(400)
    assert [path.name for path in agent.data.glob("set-aside-*")] == ["set-aside-1"]
    cluster.wait_quiet("z")
    assert "agent-3 came back with a new store" in cluster.operator.log_tail(400)
    assert cluster.client("z").get("key") == b"written after the image"


def test_a_zone_in_memory_begins_again_when_all_its_agents_were_restarted(
    start_cluster: StartCluster,
) -> None:
    """Not before the last one is back: it might have been only away, with all that was answered."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS, storage="InMemory")
    cluster.apply_zone("patient", partitions=1, storage="InMemory", onAllCopiesLost="Wait")
    with Workload(cluster, "z") as load:
        load.wait_for_writes(300)
    for agent in cluster.agents.values():
        agent.kill()
    for name in ("agent-1", "agent-2"):
        cluster.agents[name].start()
        cluster.wait_online(name)
    before = _rows(cluster)
    assert "LOST" not in _said(cluster, "Available")

    cluster.agents["agent-3"].start()
    cluster.wait_quiet("z")

    assert all(after.term > row.term for row, after in zip(before, _rows(cluster), strict=True))
    assert "partitions from 0 on start empty" in cluster.operator.log_tail(400)
    with Workload(cluster, "z") as load:
        load.wait_for_writes(300)
        assert find_violations(load.writes, load.reads + load.read_back()) == []
    conditions = cluster.zone("patient")["status"]["conditions"]
    available = next(each for each in conditions if each["type"] == "Available")
    assert available["status"] == "False"
    assert "LOST" in available["message"]
