"""An operator of before writes what a later one stored: its fields stay with the same records."""

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any, cast

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import Key, NodeKey, ShardKey, Value, ZoneKey
from quorate_operator.kube.api import ApiRefused, KubeApi
from quorate_operator.metastores.kubernetes import KubernetesMetastore

UID = "0b54ad4c-7d1c-4f35-9a7e-5a4f5ce30f01"
SHARD, HEAD, NODE = ShardKey(UID, 0), ZoneKey(UID), NodeKey("agent-1")
VOTERS = (Voter("agent-1", "s"), Voter("agent-2", "t"))
ROWS = tuple(
    PartitionRow(i, 5, 3, Holder("agent-1", "s", 4), ("agent-1", "agent-2"), VOTERS)
    for i in range(3)
)
RECORD = NodeRecord("agent-1", "s", 4, "127.0.0.1", 7100, "127.0.0.1", process="p")


class OneObject:
    """An API server that keeps one object, and takes any field."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self._revision = 0

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.replace(path, body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._revision += 1
        self.kept = deepcopy(body)
        self.kept["metadata"]["resourceVersion"] = str(self._revision)
        return self.kept

    async def delete(self, path: str, expected: str) -> None:
        self.kept = {}

    async def get(self, path: str) -> dict[str, Any]:
        if not self.kept:
            raise ApiRefused(404, "NotFound", path)
        return deepcopy(self.kept)

    async def list(self, path: str, selector: str) -> AsyncIterator[dict[str, Any]]:
        if self.kept and path.endswith("/partitiontables"):
            yield deepcopy(self.kept)


class World:
    """A metastore over it."""

    def __init__(self) -> None:
        self.api = OneObject()
        self.metastore = KubernetesMetastore(cast(KubeApi, self.api), "here", "main")

    async def written(self, key: Key, value: Value) -> dict[str, Any]:
        """The spec that is stored after another write of `value`."""
        stored = await self.metastore.read(key)
        assert stored is not None
        await self.metastore.write(key, value, stored.revision)
        return dict(self.api.kept["spec"])


@pytest.fixture
def world() -> World:
    return World()


async def test_rows_keep_them_until_they_are_changed(world: World) -> None:
    await world.metastore.write(SHARD, ROWS, None)
    spec = world.api.kept["spec"]
    spec["later"] = "of the table"
    for row in spec["rows"]:
        row["later"] = {"of": row["partition"]}
        row["voters"][1]["weight"] = row["partition"]
    stored = await world.metastore.read(SHARD)
    assert stored is not None
    assert (stored.value, stored.damaged) == (ROWS, ())

    changed = msgspec.structs.replace(ROWS[1], version=6)
    rows = (await world.written(SHARD, (ROWS[0], changed, ROWS[2])))["rows"]

    assert world.api.kept["spec"]["later"] == "of the table"
    assert [row.get("later") for row in rows] == [{"of": 0}, None, {"of": 2}]
    assert [row["voters"][1].get("weight") for row in rows] == [0, None, 2]
    assert [row["version"] for row in rows] == [5, 6, 5]


async def test_a_row_of_a_later_version_is_not_taken_for_damaged(world: World) -> None:
    await world.metastore.write(SHARD, ROWS, None)
    rows = world.api.kept["spec"]["rows"]
    rows[0]["later"] = 1
    rows[1]["replicas"] = ["agent-1", "agent-1"]
    rows[2]["later"] = 2

    stored = await world.metastore.read(SHARD)

    assert stored is not None
    assert stored.value == (ROWS[0], ROWS[2])
    assert [each.partition for each in stored.damaged] == [1]
    written = (await world.written(SHARD, (ROWS[0], ROWS[2])))["rows"]
    assert [row.get("later") for row in written] == [1, None, 2]
    assert written[1]["replicas"] == ["agent-1", "agent-1"], "kept as it is"


async def test_nothing_is_remembered_of_a_deleted_zone(world: World) -> None:
    for key, value in ((HEAD, ZoneRecord(UID, "sessions", 128, 3)), (SHARD, ROWS)):
        await world.metastore.write(key, value, None)
        spec = world.api.kept["spec"]
        spec["later"] = 7
        if key == SHARD:
            spec["rows"][1]["replicas"] = ["agent-1", "agent-1"]
        stored = await world.metastore.read(key)
        assert stored is not None
        await world.metastore.write(key, None, stored.revision)

    metastore = world.metastore
    kept = (metastore._zone_names, metastore._damaged, metastore._unreadable)
    assert kept == ({}, {}, {})
    assert metastore._later._by_key == {}


@pytest.mark.parametrize("is_listed", [False, True])
async def test_nothing_is_remembered_of_an_object_that_is_gone_when_it_is_read(
    world: World, is_listed: bool
) -> None:
    """The answer to a DELETE was lost, or another process has deleted it."""
    await world.metastore.write(SHARD, ROWS, None)
    spec = world.api.kept["spec"]
    spec["later"] = "of the table"
    spec["rows"][1]["replicas"] = ["agent-1", "agent-1"]
    assert await world.metastore.read(SHARD) is not None
    world.api.kept = {}

    if is_listed:
        assert await world.metastore.load() == {}
    else:
        assert await world.metastore.read(SHARD) is None
    await world.metastore.write(SHARD, (ROWS[0],), None)

    spec = world.api.kept["spec"]
    assert "later" not in spec
    assert [row["partition"] for row in spec["rows"]] == [0]


async def test_what_is_there_is_remembered_when_all_is_read_again(world: World) -> None:
    await world.metastore.write(SHARD, ROWS, None)
    spec = world.api.kept["spec"]
    spec["later"] = "of the table"
    spec["rows"][1]["replicas"] = ["agent-1", "agent-1"]

    await world.metastore.load()
    stored = (await world.metastore.load())[SHARD]
    await world.metastore.write(SHARD, (ROWS[0],), stored.revision)

    spec = world.api.kept["spec"]
    assert spec["later"] == "of the table"
    assert [row["partition"] for row in spec["rows"]] == [0, 1]


async def test_the_rows_of_a_zone_keep_its_name_while_its_head_is_gone(world: World) -> None:
    await world.metastore.write(HEAD, ZoneRecord(UID, "sessions", 128, 3), None)
    world.api.kept = {}

    assert await world.metastore.read(HEAD) is None
    await world.metastore.write(SHARD, ROWS, None)

    assert world.api.kept["spec"]["zoneRef"]["name"] == "sessions"


async def test_a_head_keeps_them(world: World) -> None:
    zone = ZoneRecord(UID, "sessions", 128, 3)
    await world.metastore.write(HEAD, zone, None)
    world.api.kept["spec"]["accepted"]["later"] = 7

    spec = await world.written(HEAD, msgspec.structs.replace(zone, placed=True))

    assert spec["accepted"]["later"] == 7
    assert spec["accepted"]["placed"] is True


async def test_a_registration_keeps_them_for_the_same_start_of_the_agent(world: World) -> None:
    await world.metastore.write(NODE, RECORD, None)
    world.api.kept["spec"]["rackName"] = "example.org"

    spec = await world.written(NODE, msgspec.structs.replace(RECORD, draining=True))
    assert spec["rackName"] == "example.org"

    spec = await world.written(NODE, msgspec.structs.replace(RECORD, incarnation=5))
    assert "rackName" not in spec
