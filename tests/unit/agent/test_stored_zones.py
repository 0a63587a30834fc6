"""A zone's database that holds less than was synced is noticed at the start: the folder is a new
store then.  A whole one, however its process ended, is none."""

import asyncio
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.storage import Row, ZoneRefused
from quorate_agent.clients.ports import ClientPorts
from quorate_agent.folder import data_folder, durable_file, identity
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.folder.identity import START_ANEW, FolderRefused
from quorate_agent.machine.descriptors import CLIENTS_MIN, RESERVE, Descriptors
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.database import OpenedBy
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.opening import ZoneOpening
from quorate_agent.zones.stored_zones import (
    LessThanSynced,
    last_start,
    open_stored_zones,
    open_zone,
    what_is_synced,
)


class OneAgent:
    """What an agent's process has open of its data folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = DataFolder.open(path, cluster="demo", node="agent-1", cluster_id="id")
        self.zones = open_stored_zones(self.folder, Descriptors(1 << 16))

    def write(self, uid: str, key: bytes) -> None:
        storage = self.zones[uid]
        storage.space(0, 0).put(key, Row(1, 1, 0, b"value of " + key))
        storage.commit()

    def write_synced(self, uid: str, *keys: bytes) -> None:
        for key in keys:
            self.write(uid, key)
            self.zones[uid].sync()

    def record(self) -> None:
        """What the agent does once a second; it has a zone in memory, too."""
        if self.folder.note_synced(what_is_synced({**self.zones, "memory": MemoryStorage()})):
            self.folder.save()

    def kill(self) -> None:
        """End as SIGKILL does: nothing more is written."""
        image = self.path.with_name("image")
        shutil.copytree(self.path, image)
        for storage in self.zones.values():
            storage.close()
        self.folder.close()
        shutil.rmtree(self.path)
        image.rename(self.path)

    def stop(self) -> None:
        """End as after SIGTERM."""
        for storage in self.zones.values():
            storage.close()
        self.record()
        self.folder.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def agent(path: Path) -> Iterator[OneAgent]:
    """One with two zones, of which 20 synced writes are recorded."""
    agent = OneAgent(path)
    for uid in ("z1", "z2"):
        agent.zones[uid] = open_zone(agent.folder, uid)
        agent.write_synced(uid, *[b"%d" % number for number in range(20)])
    agent.record()
    yield agent
    agent.folder.close()


def _newest_log(path: Path, uid: str) -> Path:
    return max(log for log in path.glob(f"zones/{uid}/rocksdb/*.log") if log.stat().st_size)


def _restarted(agent: OneAgent) -> tuple[str, OneAgent]:
    old = agent.folder.store
    return old, OneAgent(agent.path)


def _assert_set_aside(agent: OneAgent, caplog: pytest.LogCaptureFixture, *words: str) -> None:
    old, now = _restarted(agent)
    (said,) = [record.getMessage() for record in caplog.records]
    aside = agent.path / "set-aside-1"

    assert now.folder.store != old
    assert (now.zones, now.folder.zone_uids(), now.folder.incarnation) == ({}, [], 1)
    assert json.loads((aside / "folder.json").read_text())["store"] == old
    for part in (f"data folder {agent.path}, zone z1: ", str(aside), *words):
        assert part in said
    assert words[0] in (aside / "reason.txt").read_text()
    now.zones["z1"] = open_zone(now.folder, "z1")
    now.write_synced("z1", b"filled")
    now.record()
    now.kill()
    again = OneAgent(agent.path)
    assert again.folder.store == now.folder.store, "the new store is as good as any"
    again.stop()


def test_a_folder_is_the_same_store_however_its_process_ended(agent: OneAgent) -> None:
    store = agent.folder.store
    for number, end in enumerate([OneAgent.kill, OneAgent.stop, OneAgent.kill] * 2):
        agent.write_synced("z1", b"round %d" % number)
        if number % 2:
            agent.record()
        agent.write("z2", b"unsynced %d" % number)
        end(agent)
        agent = OneAgent(agent.path)

        assert agent.folder.store == store
        assert agent.zones["z1"].space(0, 0).get(b"round %d" % number)
    agent.stop()


def test_logs_of_a_zone_are_measured_as_it_is_opened(
    agent: OneAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the event loop need not read them."""
    for partition in (0, 7):
        agent.zones["z1"].log_put(partition, 1, 1, b"update")
    agent.write_synced("z1", b"key")
    agent.stop()

    agent = OneAgent(agent.path)

    with monkeypatch.context() as patch:
        patch.setattr(agent.zones["z1"].database, "items", None)
        assert [agent.zones["z1"].log_bytes(partition) for partition in (0, 7)] == [6, 6]
    agent.stop()


def test_a_zone_that_was_closed_is_opened_again_by_the_same_start(agent: OneAgent) -> None:
    agent.zones["z1"].close()

    agent.zones["z1"] = open_zone(agent.folder, "z1")

    assert agent.zones["z1"].space(0, 0).get(b"19")
    agent.stop()


def test_a_database_of_a_later_start_is_noticed_also_when_a_zone_is_opened_again(
    agent: OneAgent,
) -> None:
    later = OpenedBy(agent.folder.store, agent.folder.incarnation + 1)
    agent.zones["z1"].database.set_opened_by(later)
    agent.zones["z1"].close()

    with pytest.raises(LessThanSynced, match=r"folder\.json is an older copy"):
        open_zone(agent.folder, "z1")

    agent.zones["z2"].close()


def test_a_newest_log_that_was_deleted_is_noticed(
    agent: OneAgent, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = agent.folder.synced("z1")
    agent.kill()
    _newest_log(agent.path, "z1").unlink()

    assert recorded is not None
    words = f"sequence number {recorded.sequence} is recorded as synced, 0 was found"
    _assert_set_aside(agent, caplog, words)


def test_a_log_that_lost_its_last_record_is_noticed(
    agent: OneAgent, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = agent.folder.synced("z1")
    agent.kill()
    log = _newest_log(agent.path, "z1")
    log.write_bytes(log.read_bytes()[:-1])

    assert recorded is not None
    _assert_set_aside(agent, caplog, f"{recorded.sequence} is recorded as synced")


def test_a_log_that_is_deleted_when_a_table_was_just_written_is_noticed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine's own record must not count what was written while the table was."""
    agent = OneAgent(path)
    storage = agent.zones["z1"] = open_zone(agent.folder, "z1")
    engine = storage.database._db
    seen = 0
    for number in range(20_000):
        agent.write("z1", b"%d" % number * 700)
        being_written = engine.property_int_value("rocksdb.num-immutable-mem-table")
        seen += bool(being_written)
        if seen and not being_written:
            break
    assert seen > 1, "writes go on meanwhile"
    storage.sync()
    agent.record()
    agent.kill()
    _newest_log(path, "z1").unlink()

    _assert_set_aside(agent, caplog, "is recorded as synced")


def test_zones_put_back_from_an_older_copy_are_noticed(
    agent: OneAgent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent.stop()
    shutil.copytree(agent.path / "zones", tmp_path / "older")
    agent = OneAgent(agent.path)
    agent.write_synced("z1", b"new")
    agent.stop()
    shutil.rmtree(agent.path / "zones")
    (tmp_path / "older").rename(agent.path / "zones")

    _assert_set_aside(agent, caplog, "is recorded as synced")


def test_an_older_copy_that_was_written_since_is_noticed_by_its_start(
    agent: OneAgent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its numbers are higher than what is recorded, but they are of another history."""
    agent.stop()
    shutil.copytree(agent.path, tmp_path / "copy")
    agent = OneAgent(agent.path)
    agent.stop()
    agent = OneAgent(agent.path)
    agent.stop()
    elsewhere = OneAgent(tmp_path / "copy")
    elsewhere.write_synced("z1", *[b"elsewhere %d" % number for number in range(50)])
    elsewhere.stop()
    shutil.rmtree(agent.path / "zones")
    (tmp_path / "copy/zones").rename(agent.path / "zones")

    _assert_set_aside(agent, caplog, "it is an older copy")


def test_an_older_folder_json_beside_newer_zones_is_noticed(
    agent: OneAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.stop()
    older = (agent.path / "folder.json").read_text()
    agent = OneAgent(agent.path)
    agent.stop()
    (agent.path / "folder.json").write_text(older)

    _assert_set_aside(agent, caplog, "folder.json is an older copy")


def test_zones_of_another_store_are_noticed(
    agent: OneAgent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent.stop()
    other = OneAgent(tmp_path / "other")
    for uid in ("z1", "z2"):
        other.zones[uid] = open_zone(other.folder, uid)
        other.write_synced(uid, *[b"%d" % number for number in range(50)])
    other.stop()
    shutil.rmtree(agent.path / "zones")
    (tmp_path / "other/zones").rename(agent.path / "zones")

    _assert_set_aside(agent, caplog, f"store {agent.folder.store} is recorded")


def test_a_zone_that_was_emptied_is_noticed(
    agent: OneAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.stop()
    shutil.rmtree(agent.path / "zones/z1")
    (agent.path / "zones/z1").mkdir()

    _assert_set_aside(agent, caplog, "is recorded as synced, 0 was found")


def test_a_set_aside_that_is_cut_off_is_seen_again(
    agent: OneAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a database that lost something must not make it look whole."""
    agent.kill()
    _newest_log(agent.path, "z1").unlink()
    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "set_aside", cut_off)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            open_stored_zones(folder, Descriptors(1 << 16))
    folder.close()

    old, now = _restarted(agent)

    assert now.folder.store != old
    now.stop()


@pytest.mark.parametrize("writes_with_room", [0, 1, 2, 3])
def test_a_set_aside_without_room_is_refused_in_a_sentence_and_done_when_there_is_some(
    agent: OneAgent, monkeypatch: pytest.MonkeyPatch, writes_with_room: int
) -> None:
    agent.kill()
    _newest_log(agent.path, "z1").unlink()
    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
    written: list[str] = []
    real = durable_file.write_durably

    def write(file: Path, text: str) -> None:
        if len(written) == writes_with_room:
            raise OSError(28, "No space left on device", str(file))
        written.append(text)
        real(file, text)

    with monkeypatch.context() as patch:
        for module in (data_folder, identity):
            patch.setattr(module, "write_durably", write)
        with pytest.raises(FolderRefused) as refused:
            open_stored_zones(folder, Descriptors(1 << 16))
    folder.close()

    said = str(refused.value)
    assert said.startswith(f"data folder {agent.path}, zone z1: ")
    assert "it cannot be set aside: " in said
    assert "No space left on device. Way out: free some space" in said
    old, now = _restarted(agent)
    assert now.folder.store != old
    assert now.zones == {}
    now.stop()


def test_a_deleted_zone_leaves_no_number_behind(agent: OneAgent) -> None:
    agent.zones.pop("z1").close()
    agent.folder.remove_zone("z1")
    assert agent.folder.synced("z1") is None
    agent.zones["z1"] = open_zone(agent.folder, "z1")
    agent.record()
    agent.kill()

    old, now = _restarted(agent)

    assert now.folder.store == old
    assert sorted(now.zones) == ["z1", "z2"]
    now.stop()


def test_nothing_is_written_when_nothing_was_synced(agent: OneAgent) -> None:
    file = agent.path / "folder.json"

    def version() -> tuple[int, int]:
        return file.stat().st_ino, file.stat().st_mtime_ns

    before = version()
    for _ in range(3):
        agent.zones["z1"].sync()
        agent.record()
    agent.write("z1", b"not synced")
    agent.record()
    assert version() == before

    agent.zones["z1"].sync()
    agent.record()

    assert version() != before
    agent.stop()


def test_what_fails_to_sync_is_not_recorded_by_a_later_sync(
    agent: OneAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error of the disk a sync may succeed over what is lost."""
    storage = agent.zones["z1"]
    before = what_is_synced(agent.zones)["z1"]
    agent.write("z1", b"lost")
    engine, storage.database._db = storage.database._db, FailsOnce(storage.database._db)
    monkeypatch.setattr(storage.database._no_room, "wait", lambda _: False)
    for _ in range(2):
        with pytest.raises(StorageBroken, match="cannot sync"):
            storage.sync()
    storage.database._db = engine

    assert what_is_synced(agent.zones)["z1"] == before
    storage.close()
    assert what_is_synced(agent.zones)["z1"] == before


class FailsOnce:
    """An engine whose next sync fails."""

    def __init__(self, engine: object) -> None:
        self._engine = engine
        self._failed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def flush_wal(self, sync: bool) -> None:
        if not self._failed:
            self._failed = True
            raise OSError("Input/output error")


def test_a_folder_of_the_format_before_is_taken_and_recorded_from_then_on(agent: OneAgent) -> None:
    agent.stop()
    file = agent.path / "folder.json"
    fields = json.loads(file.read_text())
    for name in ("synced", "master_word", "cluster_id", "removing"):
        del fields[name]
    fields |= {"format": 1, "check": 0}
    fields["check"] = zlib.crc32(msgspec.json.encode(fields))
    file.write_bytes(msgspec.json.encode(fields))

    old, now = _restarted(agent)

    assert now.folder.store == old
    assert now.folder.synced("z1") is None
    now.write_synced("z1", b"key")
    now.stop()
    assert json.loads(file.read_text())["format"] == 2
    assert json.loads(file.read_text())["synced"]["z1"][1] == now.folder.incarnation


def test_a_database_that_cannot_be_read_is_named_and_nothing_stays_open(agent: OneAgent) -> None:
    agent.zones["z2"].record_put(b"promise", b"of a copy")
    agent.zones["z2"].commit()
    agent.stop()
    (table,) = agent.path.glob("zones/z2/rocksdb/*.sst")
    data = bytearray(table.read_bytes())
    data[20] ^= 0xFF
    table.write_bytes(data)

    for _ in range(2):
        folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
        with pytest.raises(Exception, match=rf"z2/rocksdb: cannot read.*{table.name}.*Way out"):
            open_stored_zones(folder, Descriptors(1 << 16))
        folder.close()
    RocksStorage(agent.path / "zones/z1").close()


def test_a_file_that_the_system_refuses_is_named_and_nothing_stays_open(agent: OneAgent) -> None:
    agent.stop()
    log = agent.path / "zones/z2/rocksdb/999999.log"
    log.mkdir()  # nobody can read it, whoever runs this
    refused = rf"{log}: Is a directory\. Way out: free some space, or correct"

    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
    with pytest.raises(DatabaseRefused, match=refused):
        open_stored_zones(folder, Descriptors(1 << 16))
    ports = ClientPorts("127.0.0.1", 40_000)
    assert asyncio.run(ports.look_up())
    opening = ZoneOpening("agent-1", folder, Descriptors(1 << 16), ports, chooses=True)
    with pytest.raises(ZoneRefused, match=refused):
        opening.open(ZoneRecord("z2", "books", 4, 1), None)
    folder.close()
    with pytest.raises(FolderRefused, match=refused):
        last_start(agent.path)
    RocksStorage(agent.path / "zones/z1").close()


def test_a_damaged_zone_of_what_is_put_back_is_named_with_what_remains(agent: OneAgent) -> None:
    agent.stop()
    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
    aside = folder.set_aside("for a test")
    folder.close()
    (aside / "zones/z2/rocksdb/CURRENT").unlink()

    said = rf"^{aside} is not put back, zone z2 .*CURRENT: missing\. Way out: put another set-aside"
    with pytest.raises(FolderRefused, match=said) as refused:
        last_start(aside)

    assert "quorate recover reopen" in str(refused.value)
    assert START_ANEW not in str(refused.value)


def test_a_zone_that_was_half_removed_does_not_count_when_a_folder_is_put_back(
    agent: OneAgent,
) -> None:
    agent.write_synced("z1", b"key-1")
    agent.write_synced("z2", b"key-2")
    agent.stop()
    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
    folder.forget_zone("z2")
    (agent.path / "zones/z2/rocksdb/CURRENT").write_text("half of it is gone")
    aside = folder.set_aside("for a test")
    folder.close()

    assert last_start(aside) == 1

    shutil.rmtree(aside / "zones/z1")
    assert last_start(aside) == 0, "the next start names what is missing"


def test_a_zone_later_than_the_list_of_a_folder_counts_when_the_folder_is_put_back(
    agent: OneAgent,
) -> None:
    older = (agent.path / "folder.json").read_bytes()
    agent.write_synced("z1", b"key-1")
    agent.stop()
    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
    open_zone(folder, "z3").close()
    aside = folder.set_aside("for a test")
    folder.close()
    (aside / "folder.json").write_bytes(older)

    assert last_start(aside) == 2


def test_a_folder_whose_log_is_damaged_is_not_put_back(agent: OneAgent) -> None:
    """A person decides, while the log is as it was."""
    agent.kill()
    log = _newest_log(agent.path, "z1")
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    log.write_bytes(damaged)

    with pytest.raises(FolderRefused, match=r"not put back, zone z1 cannot be read: .*Corruption"):
        last_start(agent.path)

    assert log.read_bytes() == damaged


def test_zones_without_descriptors_stay_closed_and_are_checked_when_they_are_opened(
    tmp_path: Path,
) -> None:
    agent = OneAgent(tmp_path / "agent")
    for uid in ("z1", "z2"):
        agent.zones[uid] = open_zone(agent.folder, uid)
        agent.write_synced(uid, b"key-1", b"key-2")
    older = tmp_path / "older"
    agent.stop()
    shutil.copytree(agent.path / "zones" / "z2", older)
    agent = OneAgent(agent.path)
    agent.write_synced("z2", b"key-3")
    agent.stop()

    folder = DataFolder.open(agent.path, cluster="demo", node="agent-1", cluster_id="id")
    for_one = Descriptors(RESERVE + CLIENTS_MIN + Descriptors(0).of_zone(persistent=True))
    opened = open_stored_zones(folder, for_one)
    assert list(opened) == ["z1"]
    folder.note_synced(what_is_synced(opened))
    folder.save()
    shutil.rmtree(agent.path / "zones" / "z2")
    older.rename(agent.path / "zones" / "z2")

    with pytest.raises(LessThanSynced, match="z2"):
        open_zone(folder, "z2")

    opened["z1"].close()
    folder.close()
