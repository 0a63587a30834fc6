"""Ownership objects that others change: seen at once, read row by row, written over where known."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import (
    UNREADABLE,
    Key,
    NodeKey,
    Revision,
    Seen,
    ShardKey,
    Stored,
    ZoneKey,
)
from quorate_control_plane.control_plane import ControlPlane
from quorate_loopback.waiting import closed
from quorate_operator.kube.access import read_kubeconfig
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.scope import Scope
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.metastores.damaged_rows import sift
from quorate_operator.metastores.kubernetes import WATCHED, KubernetesMetastore
from quorate_operator.names import LABEL_CLUSTER, MASTER_TERM_OF_BEFORE

pytestmark = pytest.mark.integration

UID = "0b54ad4c-7d1c-4f35-9a7e-5a4f5ce30f01"
ZONE = ZoneRecord(UID, "sessions", 128, 3, placed=True)
NODE = NodeRecord("agent-1", "store-1", 4, "127.0.0.1", 7100, "127.0.0.1")
VOTERS = tuple(Voter(f"agent-{i}", f"store-{i}") for i in (1, 2, 3))
ROWS = tuple(
    PartitionRow(64 + i, 5, 3, Holder("agent-1", "store-1", 4), ("agent-1", "agent-2"), VOTERS)
    for i in range(3)
)
SHARD = ShardKey(UID, 1)
NAME = f"{UID}-001"
TABLES = "partitiontables"


class Place:
    """One namespace with a metastore in it, and what another does there."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.api = KubeApi(read_kubeconfig(control_plane.kubeconfig), None)
        self.metastore = KubernetesMetastore(self.api, namespace, "main")
        self._control_plane = control_plane
        self._namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        here = f"--namespace={self._namespace}"
        return self._control_plane.kubectl(*arguments, here, stdin=stdin).stdout

    def get(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.kubectl("get", TABLES, name, "--output=json")))

    async def write_all(self) -> dict[Key, Revision]:
        made: dict[Key, Revision] = {}
        made[ZoneKey(UID)] = await self.metastore.write(ZoneKey(UID), ZONE, None)
        made[NodeKey("agent-1")] = await self.metastore.write(NodeKey("agent-1"), NODE, None)
        made[SHARD] = await self.metastore.write(SHARD, ROWS, None)
        return made


@pytest.fixture
async def place(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Place]:
    place = Place(control_plane, namespace)
    yield place
    await closed(place.api)


async def test_what_is_there_is_seen_and_then_what_anybody_changes(place: Place) -> None:
    revisions = await place.write_all()
    failures: list[str] = []
    scope = Scope((), place._namespace)
    watches = SharedWatches(place.api, scope, WATCHED, LABEL_CLUSTER, failures.append)
    seen: list[Seen] = []
    news = asyncio.Event()

    async def follow() -> None:
        async for each in place.metastore.changes(watches):
            seen.append(each)
            news.set()

    async def until(count: int) -> None:
        async with asyncio.timeout(20):
            while len(seen) < count:
                news.clear()
                await news.wait()

    following = asyncio.create_task(follow())
    try:
        await until(2)
        first = {key: rev for each in seen for key, rev in each.revisions.items()}
        assert first == revisions
        assert {kind for each in seen for kind in each.all_of} == {"node", "zone", "shard"}

        await asyncio.to_thread(place.kubectl, "delete", TABLES, NAME)
        await asyncio.to_thread(place.kubectl, "delete", "storagenodes", "main.agent-1")
        await until(4)
        again = await place.metastore.write(SHARD, ROWS, None)
        await until(5)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await watches.close()

    assert failures == []
    assert seen[2:5] == [
        Seen({SHARD: None}),
        Seen({NodeKey("agent-1"): None}),
        Seen({SHARD: again}),
    ]


async def test_that_a_zone_was_placed_is_kept_in_its_head(place: Place) -> None:
    await place.write_all()

    stored = await place.metastore.read(ZoneKey(UID))

    assert stored is not None
    assert stored.value == ZONE


async def test_a_row_that_is_none_is_told_kept_and_written_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    revisions = await place.write_all()
    twice = ["agent-1", "agent-1"]
    answer = place.api.get

    async def changed(path: str, *arguments: Any) -> dict[str, Any]:
        """As if the API server's schema took any row (test_lost_ownership.py has it do so)."""
        found = await answer(path, *arguments)
        found["spec"]["rows"][1]["replicas"] = twice
        return found

    monkeypatch.setattr(place.api, "get", changed)
    stored = await place.metastore.read(SHARD)

    assert stored is not None
    assert stored.value == (ROWS[0], ROWS[2])
    (damaged,) = stored.damaged
    assert (damaged.partition, damaged.version, damaged.term) == (65, 5, 3)
    assert f"PartitionTable {NAME}, row of partition 65" in damaged.why
    bodies: list[dict[str, Any]] = []

    async def replace(path: str, body: dict[str, Any], *_: Any) -> dict[str, Any]:
        bodies.append(body)
        return body

    monkeypatch.setattr(place.api, "replace", replace)
    await place.metastore.write(SHARD, (ROWS[0], ROWS[2]), revisions[SHARD])
    await place.metastore.write(SHARD, ROWS, revisions[SHARD])
    kept, over = [{row["partition"]: row for row in b["spec"]["rows"]} for b in bodies]
    assert kept[65]["replicas"] == twice
    assert over[65]["replicas"] == ["agent-1", "agent-2"]


async def test_it_is_said_which_field_of_an_invalid_row_is_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.write_all()
    answer = place.api.get

    async def changed(path: str, *arguments: Any) -> dict[str, Any]:
        found = await answer(path, *arguments)
        found["spec"]["rows"][1]["term"] = "spec.rows[0].x"
        return found

    monkeypatch.setattr(place.api, "get", changed)
    stored = await place.metastore.read(SHARD)

    assert stored is not None
    (damaged,) = stored.damaged
    said = "term is 'spec.rows[0].x': should be a valid integer"
    assert damaged.why == f"PartitionTable {NAME}, row of partition 65: {said}"


async def test_an_object_that_is_not_the_operators_is_passed_over(place: Place) -> None:
    await place.write_all()
    copied = place.get(NAME)
    copied["metadata"] = {"name": "copied", "labels": copied["metadata"]["labels"]}
    copied["spec"]["rows"] = []
    place.kubectl("create", "--filename=-", stdin=json.dumps(copied))

    loaded = await place.metastore.load()

    assert loaded[SHARD].value == ROWS
    assert len(loaded) == 3


async def test_an_object_that_cannot_be_read_stops_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.write_all()
    listed = place.api.list

    async def changed(path: str, selector: str = "") -> AsyncIterator[dict[str, Any]]:
        async for item in listed(path, selector):
            yield {**item, "spec": {**item["spec"], "clusterRef": 1}}

    monkeypatch.setattr(place.api, "list", changed)
    loaded = await place.metastore.load()

    assert loaded.keys() == {SHARD}
    rows: Stored = loaded[SHARD]
    assert rows.value == ()
    assert {each.partition for each in rows.damaged} == set(range(64, 128))
    assert {each.version for each in rows.damaged} == {UNREADABLE}
    # What its master writes of the others takes the place of what nobody can read.
    assert await place.metastore.write(ZoneKey(UID), ZONE, None)
    assert await place.metastore.write(NodeKey("agent-1"), NODE, None)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("replicas", ["agent-1", "agent-9"], "outside"),
        ("voters", [{"node": "agent-1", "storeId": "s"}] * 2, "a voter appears twice"),
        ("term", 6, "term 6 above 5"),
        ("partition", 3, "partition 3 is none of shard 1"),
        ("replicas", ["agent-2", "agent-1"], "index 0"),
        ("version", "five", "version"),
    ],
)
async def test_each_row_is_judged_by_itself(
    place: Place, field: str, value: object, why: str
) -> None:
    await place.write_all()
    whole = place.get(NAME)
    whole["spec"]["rows"][1][field] = value

    spec, damaged, _ = sift(whole)

    assert [row.partition for row in spec.rows or ()] == [64, 66]
    ((row, raw),) = damaged
    assert why in row.why
    assert raw[field] == value


async def test_masterships_are_counted_for_each_cluster_above_what_its_namespace_counted_before(
    place: Place,
) -> None:
    """By version, then as compare-and-set: five at once have five numbers."""
    name = MASTER_TERM_OF_BEFORE
    place.kubectl("create", "configmap", name, "--from-literal=term=41")
    other = KubernetesMetastore(place.api, place._namespace, "other", told_term=10**6)

    terms = await asyncio.gather(*(place.metastore.acquire_master_term() for _ in range(5)))

    assert sorted(terms) == [42, 43, 44, 45, 46]
    assert await other.acquire_master_term() == 42
    assert "41" in place.kubectl("get", "configmap", name, "--output=jsonpath={.data.term}")
    place.kubectl("delete", "masterterm", "main")
    assert await place.metastore.acquire_master_term(above=50) == 51
