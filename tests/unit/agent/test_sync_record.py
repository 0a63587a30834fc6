"""What was synced is recorded beside the event loop, one write at a time; a full disk ends none."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.protocol.storage import Row
from quorate_agent.folder import durable_file, identity
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.stored_zones import open_zone
from quorate_agent.zones.sync_record import SyncRecord
from quorate_loopback.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    folder = DataFolder.open(tmp_path, cluster="demo", node="agent-1", cluster_id="id")
    yield folder
    folder.close()


@pytest.fixture
def storage(folder: DataFolder) -> Iterator[RocksStorage]:
    storage = open_zone(folder, "z")
    yield storage
    storage.close()


@pytest.fixture
def goes_on() -> Iterator[Callable[[str], None]]:
    """What is told when the agent must end: never, at the test's end."""
    why: list[str] = []
    yield why.append
    assert why == []


def _write_synced(storage: RocksStorage, key: bytes) -> int:
    storage.space(0, 0).put(key, Row(1, 1, 0, b"value"))
    storage.commit()
    storage.sync()
    return storage.database.synced_sequence


def _recorded(folder: DataFolder) -> int:
    said = json.loads((folder.path / "folder.json").read_text())
    return int(said["synced"].get("z", [0])[0])


def _noted(record: SyncRecord, folder: DataFolder) -> int:
    """What is recorded, and that it be noted what there is now."""
    record.note()
    return _recorded(folder)


def test_one_write_at_a_time_and_the_loop_goes_on_meanwhile(
    folder: DataFolder,
    storage: RocksStorage,
    monkeypatch: pytest.MonkeyPatch,
    goes_on: Callable[[str], None],
) -> None:
    may_end, threads = threading.Event(), []
    real = durable_file.write_durably

    def slow(file: Path, text: str) -> None:
        threads.append(threading.current_thread())
        assert may_end.wait(30)
        real(file, text)

    async def story() -> None:
        record = SyncRecord(folder, {"z": storage}, goes_on)
        monkeypatch.setattr(identity, "write_durably", slow)
        first = _write_synced(storage, b"1")
        record.note()
        second = _write_synced(storage, b"2")
        record.note()
        assert _recorded(folder) == 0, "nothing is waited for"
        may_end.set()
        await until(lambda: _recorded(folder) >= first)
        await until(lambda: _noted(record, folder) >= second, "record of the second write")
        await until(lambda: record._saving is None)
        record.note()
        assert record._saving is None, "nothing was synced since"
        assert len(threads) == 2
        assert threading.main_thread() not in threads

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_disk_without_room_is_told_once_and_recorded_when_there_is_some(
    folder: DataFolder,
    storage: RocksStorage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    goes_on: Callable[[str], None],
) -> None:
    tried = []

    def full(file: Path, text: str) -> None:
        tried.append(text)
        raise OSError(28, "No space left on device")

    async def story() -> None:
        record = SyncRecord(folder, {"z": storage}, goes_on)
        sequence = _write_synced(storage, b"1")
        with monkeypatch.context() as patch:
            patch.setattr(identity, "write_durably", full)
            while len(tried) < 3:
                record.note()
                await asyncio.sleep(0.01)
            record.save_last()
            assert len(caplog.records) == 1
            assert f"data folder {folder.path}: the synced position cannot" in caplog.text
            assert "No space left" in caplog.text
        await until(lambda: _noted(record, folder) >= sequence, "record")

    asyncio.run(asyncio.wait_for(story(), 30))


def test_what_no_disk_explains_ends_the_agent(
    folder: DataFolder, storage: RocksStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(file: Path, text: str) -> None:
        raise ValueError("not as it should be")

    async def story() -> None:
        why: list[str] = []
        record = SyncRecord(folder, {"z": storage}, why.append)
        _write_synced(storage, b"1")
        with monkeypatch.context() as patch:
            patch.setattr(identity, "write_durably", broken)
            record.note()
            await until(lambda: record._saving is None)
        (said,) = why
        assert said.startswith(f"data folder {folder.path}: the synced position cannot")
        assert said.endswith(": ValueError: not as it should be")

    asyncio.run(asyncio.wait_for(story(), 30))


def test_nothing_is_written_into_a_folder_that_was_released(
    folder: DataFolder, storage: RocksStorage, goes_on: Callable[[str], None]
) -> None:
    """Another process may have it by now."""
    _write_synced(storage, b"1")
    folder.close()
    before = (folder.path / "folder.json").read_text()

    SyncRecord(folder, {"z": storage}, goes_on).save_last()

    assert (folder.path / "folder.json").read_text() == before
