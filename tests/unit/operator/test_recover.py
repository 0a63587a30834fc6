"""A new metastore takes the place of the old one in one step, whatever happens on the way."""

import errno
import shutil
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from quorate.facts.errors import QuorateError
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.masterships import RECOVERY_TERMS
from quorate.protocol.metastore import NodeKey, ZoneKey
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import external
from quorate_loopback.runner_world import ScriptedAgent
from quorate_loopback.sides import SECRET
from quorate_operator.embedded import recover
from quorate_operator.embedded.objects import ObjectStore
from quorate_operator.metastores import sqlite_file
from quorate_operator.metastores.backups import DATABASE
from quorate_operator.metastores.sqlite import SqliteMetastore, recovering_clusters
from quorate_operator.metastores.sqlite_file import USED, EmbeddedStore, StoreRefused, lock_folder

KEYS = SECRET.keys("tool")
NODE = NodeRecord("a", "s", 1, "127.0.0.1", 7100, "127.0.0.1")


@pytest.fixture
async def agent() -> AsyncIterator[ScriptedAgent]:
    agent = ScriptedAgent("agent-1", lambda table: None)
    await agent.listen()
    agent.hello = msgspec.structs.replace(agent.hello, master_term=7)
    yield agent
    await agent.close()


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder in which an operator has run."""
    store = EmbeddedStore.open(tmp_path)
    await SqliteMetastore(store, "main").acquire_master_term(40)
    await store.close()
    (tmp_path / USED).write_text("{}")
    return tmp_path


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with the secrets of two clusters."""
    made = tmp_path / "of both"
    made.mkdir()
    for name in ("main", "other"):
        (made / f"{name}.json").touch()
    return made


async def _next_term(folder: Path) -> int:
    store = EmbeddedStore.open(folder)
    try:
        return await SqliteMetastore(store, "main").acquire_master_term()
    finally:
        await store.close()


async def test_the_new_metastore_goes_on_above_what_agents_know_and_asks_them(
    folder: Path, agent: ScriptedAgent
) -> None:
    said = await recover.recover(folder, "main", [agent.address], KEYS, folder / "secrets")

    assert f"above {7 + RECOVERY_TERMS}" in said[0]
    assert (folder / "set-aside-1" / DATABASE).exists()
    store = EmbeddedStore.open(folder)
    assert await recovering_clusters(store) == {"main"}
    await store.close()
    assert await _next_term(folder) == 7 + RECOVERY_TERMS + 1
    assert not (folder / recover.MADE).exists()


async def _declare(folder: Path, *clusters: str) -> None:
    """Declare clusters, each with a zone of its name and ownership of it."""
    store = EmbeddedStore.open(folder)
    objects = ObjectStore(store)
    await objects.load()
    for name in clusters:
        about = {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": {"name": name}}
        await objects.put("storageclusters", name, {**about, "spec": external([f"{name}:1"])})
        zone = {"apiVersion": API_VERSION, "kind": "Zone", "metadata": {"name": f"of-{name}"}}
        await objects.put("zones", f"of-{name}", {**zone, "spec": {"clusterRef": {"name": name}}})
        metastore = SqliteMetastore(store, name)
        await metastore.write(ZoneKey(f"uid-of-{name}"), ZoneRecord("u", "z", 4, 3), None)
        await metastore.acquire_master_term(50)
    await store.close()


async def _held(folder: Path) -> tuple[set[str], set[str]]:
    """The names of declared objects, and the clusters of which there is ownership."""
    store = EmbeddedStore.open(folder)
    objects = ObjectStore(store)
    await objects.load()
    names = {
        made["metadata"]["name"]
        for kind in ("storageclusters", "zones")
        for made in objects.list(kind)
    }
    owned = {name for name in ("main", "other") if await SqliteMetastore(store, name).load() != {}}
    await store.close()
    return names, owned


async def test_another_cluster_of_the_same_file_is_kept_as_it_was(
    folder: Path, agent: ScriptedAgent, secrets: Path
) -> None:
    await _declare(folder, "main", "other")

    said = await recover.recover(folder, "main", [agent.address], KEYS, secrets)

    assert await _held(folder) == ({"main", "other", "of-other"}, {"other"})
    assert "kept as they were: clusters other" in said
    assert not [each for each in said if "does not have" in each]
    store = EmbeddedStore.open(folder)
    assert await recovering_clusters(store) == {"main"}
    assert await SqliteMetastore(store, "other").acquire_master_term() == 52
    revision = await SqliteMetastore(store, "other").write(NodeKey("a"), NODE, None)
    await store.close()
    assert int(revision) > 2, "no revision is used twice"


async def test_two_clusters_of_a_lost_file_are_recovered_one_after_the_other(
    folder: Path, agent: ScriptedAgent, secrets: Path
) -> None:
    await _declare(folder, "main", "other")
    (folder / DATABASE).write_bytes(b"damaged" * 1000)
    (folder / f"{DATABASE}-wal").unlink(missing_ok=True)

    said = await recover.recover(folder, "main", [agent.address], KEYS, secrets)

    (way_out,) = (each for each in said if "does not have" in each)
    assert "clusters other, of which there are secrets" in way_out
    assert "stop the operator, then run for each that has agents" in way_out
    command = f"`quorate-operator recover --data {folder} --secrets '{secrets}' --cluster NAME"
    assert way_out.endswith(f" {command} --agents HOST:PORT,…`")
    assert await _held(folder) == ({"main"}, set())
    agent.hello = msgspec.structs.replace(agent.hello, cluster="other")
    said = await recover.recover(folder, "other", [agent.address], KEYS, secrets)
    assert await _held(folder) == ({"main", "other"}, set())
    assert not [each for each in said if "does not have" in each]
    store = EmbeddedStore.open(folder)
    assert await recovering_clusters(store) == {"main", "other"}
    await store.close()
    assert (folder / "set-aside-1" / DATABASE).read_bytes().startswith(b"damaged")


async def test_a_bad_sector_of_the_old_file_does_not_hold_up_the_recovery(
    folder: Path, agent: ScriptedAgent, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _declare(folder, "main", "other")
    left: list[list[Path]] = []

    def marked(at: sqlite3.Connection, cluster: str, master_term: int) -> None:
        left.append([*(folder / recover.MADE / "old").glob("*")])
        mark(at, cluster, master_term)

    mark = recover.mark_recovering
    monkeypatch.setattr(recover, "mark_recovering", marked)
    monkeypatch.setattr(shutil, "copyfile", partial(_begin_a_copy, errno.EIO))
    said = await recover.recover(folder, "main", [agent.address], KEYS, secrets)

    assert left == [[]], "the room is needed"
    assert [each for each in said if "does not have the clusters other" in each]
    assert await _held(folder) == ({"main"}, set())
    assert await _next_term(folder) == 7 + RECOVERY_TERMS + 1


def _begin_a_copy(number: int, source: Path, target: Path) -> None:
    """Copy a part of a file; then fail with this error of the operating system."""
    target.write_bytes(source.read_bytes()[:100])
    raise OSError(number, "of the disk")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
async def test_nothing_is_changed_if_a_sound_file_cannot_be_copied(
    folder: Path,
    agent: ScriptedAgent,
    secrets: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    await _declare(folder, "main", "other")
    before = await _held(folder)

    monkeypatch.setattr(shutil, "copyfile", partial(_begin_a_copy, number))
    with pytest.raises(recover.NotRecovered, match="of the disk; nothing was changed"):
        await recover.recover(folder, "main", [agent.address], KEYS, secrets)

    assert not (folder / recover.MADE).exists(), "the room is needed"
    assert not (folder / "set-aside-1").exists()
    assert await _held(folder) == before


@pytest.mark.parametrize("sql", ["PRAGMA max_page_count = 1", "ATTACH '/no/folder/file' AS lost"])
async def test_nothing_is_changed_if_the_copy_of_a_sound_file_cannot_be_opened(
    folder: Path,
    agent: ScriptedAgent,
    secrets: Path,
    monkeypatch: pytest.MonkeyPatch,
    sql: str,
) -> None:
    await _declare(folder, "main", "other")
    before = await _held(folder)
    prepare = sqlite_file._prepare

    def prepare_without_room(at: sqlite3.Connection) -> None:
        prepare(at)
        at.execute(sql)
        at.execute("CREATE TABLE one_more (value BLOB)")

    monkeypatch.setattr(sqlite_file, "_prepare", prepare_without_room)
    with pytest.raises(recover.NotRecovered, match=r"clusters other.*; nothing was changed"):
        await recover.recover(folder, "main", [agent.address], KEYS, secrets)
    monkeypatch.undo()

    assert not (folder / recover.MADE).exists(), "the room is needed"
    assert not (folder / "set-aside-1").exists()
    assert await _held(folder) == before


async def test_a_file_that_cannot_be_copied_holds_up_no_recovery_of_the_only_cluster(
    folder: Path, agent: ScriptedAgent, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secrets / "other.json").unlink()
    await _declare(folder, "main")

    monkeypatch.setattr(shutil, "copyfile", partial(_begin_a_copy, errno.ENOSPC))
    await recover.recover(folder, "main", [agent.address], KEYS, secrets)

    assert (folder / "set-aside-1" / DATABASE).exists()
    assert await _next_term(folder) == 7 + RECOVERY_TERMS + 1


async def test_what_fails_before_the_mark_is_made_leaves_the_old_metastore_in_its_place(
    folder: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(at: sqlite3.Connection, cluster: str, master_term: int) -> None:
        raise QuorateError("no room")

    monkeypatch.setattr(recover, "mark_recovering", fails)
    with pytest.raises(QuorateError, match="no room"):
        await recover.recover(folder, "main", [agent.address], KEYS, folder / "secrets")
    monkeypatch.undo()

    assert not (folder / "set-aside-1").exists()
    assert await _next_term(folder) == 42
    await recover.recover(
        folder, "main", [agent.address], KEYS, folder / "secrets"
    )  # over what the first try left
    assert await _next_term(folder) == 7 + RECOVERY_TERMS + 1


async def test_no_operator_can_use_the_folder_before_the_new_metastore_is_there(
    folder: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[str] = []
    in_place: list[int] = []
    old = (folder / DATABASE).stat().st_ino
    mark = recover.mark_recovering

    def marked(at: sqlite3.Connection, cluster: str, master_term: int) -> None:
        try:
            with lock_folder(folder):
                pass
        except StoreRefused as error:
            locked.append(str(error))
        in_place.append((folder / DATABASE).stat().st_ino)
        mark(at, cluster, master_term)

    monkeypatch.setattr(recover, "mark_recovering", marked)

    await recover.recover(folder, "main", [agent.address], KEYS, folder / "secrets")

    assert in_place == [old]
    assert (folder / DATABASE).stat().st_ino != old
    (error,) = locked
    assert "is held by another operator" in error
