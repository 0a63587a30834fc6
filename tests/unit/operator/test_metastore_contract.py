"""What every metastore promises, asked of all three of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import StorageKind, SyncWrites, ZoneRecord
from quorate.protocol.metastore import (
    Conflict,
    Key,
    Metastore,
    NodeKey,
    ShardKey,
    Stored,
    Value,
    ZoneKey,
)
from quorate_control_plane.control_plane import ControlPlane
from quorate_loopback.waiting import closed
from quorate_operator.kube.access import read_kubeconfig
from quorate_operator.kube.api import KubeApi
from quorate_operator.metastores.kubernetes import KubernetesMetastore
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_operator.metastores.sqlite import SqliteMetastore
from quorate_operator.metastores.sqlite_file import EmbeddedStore

UID = "0b54ad4c-7d1c-4f35-9a7e-5a4f5ce30f01"
ZONE = ZoneRecord(
    UID, "sessions", 128, 3, StorageKind.IN_MEMORY, SyncWrites.ALWAYS, 1 << 29, {"agent-1": 7000}
)
NODE = NodeRecord(
    "agent-1", "store-1", 4, "127.0.0.1", 7100, "127.0.0.1", "rack-a", 2, 1_700_000, "3f9c", True
)
VOTERS = (Voter("agent-1", "store-1"), Voter("agent-2", "store-2"), Voter("agent-3", "store-3"))
MIGRATION = Migration(
    "sessions/1/8",
    MigrationKind.MOVE,
    "agent-3",
    Holder("agent-4", "store-4", 1),
    ("agent-1", "agent-2", "agent-4"),
    (*VOTERS[:2], Voter("agent-4", "store-4")),
)
ROWS = (
    PartitionRow(
        0, 1, 1, Holder("agent-1", "store-1", 4), ("agent-1", "agent-2", "agent-3"), VOTERS
    ),
    PartitionRow(
        1, 8, 5, Holder("agent-1", "store-1", 4), ("agent-1", None, None), VOTERS, MIGRATION
    ),
    PartitionRow(2, 3, 3, None, (None, None, None), VOTERS),
    PartitionRow(3, 9, 9, None, (None,), VOTERS, None, (VOTERS[:2], VOTERS[1:])),
)
SHARD = ShardKey(UID, 0)


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("kubernetes", marks=pytest.mark.integration)]
)
async def metastore(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Metastore]:
    if request.param == "memory":
        yield MemoryMetastore()
    elif request.param == "sqlite":
        store = EmbeddedStore.open(tmp_path)
        yield SqliteMetastore(store, "main")
        await store.close()
    else:
        control_plane: ControlPlane = request.getfixturevalue("control_plane")
        api = KubeApi(read_kubeconfig(control_plane.kubeconfig), None)
        namespace = request.getfixturevalue("namespace")
        yield KubernetesMetastore(api, namespace, "main")
        await closed(api)


@pytest.mark.parametrize("kind", ["zone", "node", "shard"])
async def test_what_was_written_is_read_back(metastore: Metastore, kind: str) -> None:
    written: dict[str, tuple[Key, Value]] = {
        "zone": (ZoneKey(UID), ZONE),
        "node": (NodeKey("agent-1"), NODE),
        "shard": (SHARD, ROWS),
    }
    key, value = written[kind]

    revision = await metastore.write(key, value, None)

    assert await metastore.read(key) == Stored(value, revision)


async def test_everything_is_loaded_at_once(metastore: Metastore) -> None:
    written: dict[Key, Value] = {
        ZoneKey(UID): ZONE,
        NodeKey("agent-1"): NODE,
        SHARD: ROWS,
        ShardKey(UID, 0): (),
    }
    for key, value in written.items():
        await metastore.write(key, value, None)

    loaded = await metastore.load()

    assert {key: stored.value for key, stored in loaded.items()} == written


async def test_an_empty_metastore_holds_nothing(metastore: Metastore) -> None:
    assert await metastore.load() == {}
    assert await metastore.read(SHARD) is None


async def test_the_revision_that_load_tells_is_the_one_to_write_at(metastore: Metastore) -> None:
    await metastore.write(SHARD, ROWS, None)
    stored = (await metastore.load())[SHARD]

    await metastore.write(SHARD, ROWS[:1], stored.revision)

    assert (await metastore.load())[SHARD].value == ROWS[:1]


async def test_creating_what_exists_is_a_conflict(metastore: Metastore) -> None:
    await metastore.write(SHARD, ROWS, None)

    with pytest.raises(Conflict):
        await metastore.write(SHARD, ROWS[:1], None)

    stored = await metastore.read(SHARD)
    assert stored is not None
    assert stored.value == ROWS


async def test_of_two_writes_at_one_revision_one_is_a_conflict(metastore: Metastore) -> None:
    revision = await metastore.write(SHARD, ROWS[:1], None)

    outcomes = await asyncio.gather(
        metastore.write(SHARD, ROWS[:2], revision),
        metastore.write(SHARD, ROWS, revision),
        return_exceptions=True,
    )

    assert sorted(isinstance(outcome, Conflict) for outcome in outcomes) == [False, True]
    winner = ROWS[:2] if isinstance(outcomes[1], Conflict) else ROWS
    stored = await metastore.read(SHARD)
    assert stored is not None
    assert stored.value == winner


async def test_each_write_answers_the_revision_for_the_next(metastore: Metastore) -> None:
    revision = await metastore.write(NodeKey("agent-1"), NODE, None)
    revisions = [revision]
    for incarnation in range(5, 9):
        record = NodeRecord("agent-1", "store-1", incarnation, "127.0.0.1", 7100, "127.0.0.1")
        revision = await metastore.write(NodeKey("agent-1"), record, revision)
        revisions.append(revision)

    assert len(set(revisions)) == len(revisions)


async def test_what_was_deleted_is_gone_and_can_be_made_again(metastore: Metastore) -> None:
    revision = await metastore.write(SHARD, ROWS, None)

    assert await metastore.write(SHARD, None, revision) == ""

    assert await metastore.read(SHARD) is None
    again = await metastore.write(SHARD, ROWS, None)
    assert again != revision


async def test_deleting_at_an_old_revision_is_a_conflict(metastore: Metastore) -> None:
    old = await metastore.write(SHARD, ROWS[:1], None)
    await metastore.write(SHARD, ROWS, old)

    with pytest.raises(Conflict):
        await metastore.write(SHARD, None, old)

    assert await metastore.read(SHARD) is not None


async def test_changing_or_deleting_what_does_not_exist_is_a_conflict(metastore: Metastore) -> None:
    revision = await metastore.write(SHARD, ROWS, None)
    await metastore.write(SHARD, None, revision)

    with pytest.raises(Conflict):
        await metastore.write(SHARD, ROWS, revision)
    with pytest.raises(Conflict):
        await metastore.write(SHARD, None, revision)


async def test_no_two_masters_get_the_same_term(metastore: Metastore) -> None:
    terms = await asyncio.gather(*(metastore.acquire_master_term() for _ in range(5)))

    assert len(set(terms)) == 5
    assert await metastore.acquire_master_term() > max(terms) > 0


async def test_masterships_are_counted_above_what_an_agent_knows(metastore: Metastore) -> None:
    first = await metastore.acquire_master_term(7)
    assert first > 7
    assert await metastore.acquire_master_term(first + 500) == first + 501
    assert await metastore.acquire_master_term(3) == first + 502


async def test_a_full_shard_of_wide_rows_fits(metastore: Metastore) -> None:
    key = ShardKey(UID, 1)
    voters = tuple(Voter(f"agent-with-a-long-name-{i}", f"{i:032x}") for i in range(7))
    nodes = tuple(voter.node for voter in voters)
    holder = Holder(nodes[0], voters[0].store, 12)
    newcomer = Holder("agent-with-a-long-name-8", "f" * 32, 3)
    migration = Migration("m" * 80, MigrationKind.COPY, None, newcomer, nodes, voters)
    rows = tuple(PartitionRow(64 + i, 9, 8, holder, nodes, voters, migration) for i in range(64))

    revision = await metastore.write(key, rows, None)
    later = tuple(PartitionRow(64 + i, 11, 8, holder, nodes, voters) for i in range(64))
    await metastore.write(key, later, revision)

    stored = await metastore.read(key)
    assert stored is not None
    assert stored.value == later
