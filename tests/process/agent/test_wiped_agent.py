"""An agent's folder is gone, copied or never comes back: who votes, who takes its place."""

import shutil
import sqlite3
import time

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.settings import DEFAULTS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.operator_api import Json
from quorate_cluster.processes import Agent
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 8
DELAY_S = DEFAULTS.replacement_delay_ms / 1000
_decoder = msgspec.json.Decoder(tuple[PartitionRow, ...])


def _rows(cluster: Cluster) -> list[PartitionRow]:
    """The rows of the only zone, as the embedded operator's metastore holds them."""
    path = cluster.folder / "operator" / "metastore.sqlite"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        found = connection.execute("SELECT value FROM records WHERE kind = 'shard'").fetchall()
    finally:
        connection.close()
    return [row for (value,) in found for row in _decoder.decode(value)]


def _votes(cluster: Cluster, node: str) -> int:
    return sum(node in row.voter_nodes for row in _rows(cluster))


def _node(cluster: Cluster, name: str) -> Json:
    return next(node for node in cluster.api.status()["nodes"] if node["name"] == name)


def _said(cluster: Cluster, kind: str) -> str:
    conditions = cluster.zone("z")["status"]["conditions"]
    return next(str(each["message"]) for each in conditions if each["type"] == kind)


def _start_with_data(start_cluster: StartCluster) -> Cluster:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    return cluster


def _wipe(agent: Agent) -> None:
    agent.kill()
    shutil.rmtree(agent.data)
    agent.start()


def test_a_wiped_agent_takes_no_part_as_its_old_self_until_a_spare_has_its_place(
    start_cluster: StartCluster,
) -> None:
    cluster = _start_with_data(start_cluster)
    wiped = cluster.agents["agent-1"]
    old = _node(cluster, "agent-1")["store"]
    with Workload(cluster, "z") as load:
        wait_until(lambda: load.acknowledged > 300, "writes")
        _wipe(wiped)
        cluster.wait_online("agent-1")
        wait_until(lambda: "new store" in _said(cluster, "FullyReplicated"), "word of it")

        assert "agent-1 came back with a new store" in _said(cluster, "FullyReplicated")
        assert "agent-1 came back with a new store" in cluster.operator.log_tail(400)
        assert _node(cluster, "agent-1")["store"] != old
        # Its vote stays with the store that is gone, and nobody takes the new one for it.
        wait_until(lambda: _node(cluster, "agent-1")["owners"] == 0, "no copies")
        assert _votes(cluster, "agent-1") == PARTITIONS
        assert {v.store for row in _rows(cluster) for v in row.voters if v.node == "agent-1"} == {
            old
        }
        before = load.acknowledged
        wait_until(lambda: load.acknowledged > before + 300, "writes without it")

        moves: set[tuple[int, str, str | None, str | None]] = set()
        cluster.add_agent()

        def is_replaced() -> bool:
            for each in cluster.zone_status("z")["migrations"]:
                if each["source"] == "agent-1":
                    place = each["partition"], each["kind"]
                    moves.add((*place, each["source"], each["destination"]))
            stores = {voter.store for row in _rows(cluster) for voter in row.voters}
            return old not in stores

        wait_until(is_replaced, "the old store replaced", 60, lambda: _rows(cluster))
        # From now on it may join as new.
        wait_until(lambda: _node(cluster, "agent-1")["owners"] > 0, "copies on agent-1", 60)
        cluster.wait_quiet("z")
        before = load.acknowledged
        wait_until(lambda: load.acknowledged > before + 300, "further writes")

    assert {(kind, to) for _, kind, _, to in moves} <= {("MOVE", "agent-4")}
    assert len({partition for partition, *_ in moves}) == len(moves)
    assert find_violations(load.writes, load.reads + load.read_back()) == []


def test_an_agent_lost_for_good_is_replaced_by_a_spare_after_the_delay(
    start_cluster: StartCluster,
) -> None:
    cluster = _start_with_data(start_cluster)
    cluster.add_agent()
    cluster.wait_quiet("z")
    victim = max(
        (each for each in cluster.agents.values() if each.name != "agent-4"),
        key=lambda each: _votes(cluster, each.name),
    )
    votes = _votes(cluster, victim.name)
    assert votes
    with Workload(cluster, "z") as load:
        wait_until(lambda: load.acknowledged > 300, "writes")
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
        wait_until(lambda: load.acknowledged > 300, "writes")
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
    wait_until(lambda: "new store" in _said(cluster, "FullyReplicated"), "word of it")
    assert cluster.client("z").get("key") == b"written after the image"
