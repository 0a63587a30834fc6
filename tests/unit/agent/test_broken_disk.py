"""After an error of the disk an agent takes nothing as durable, and sends nothing more."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.facts.zone import SyncWrites
from quorate.protocol.agent.turn import Turn
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Heartbeat
from quorate.protocol.storage import Row, StorageFull
from quorate_agent.process.server import Agent
from quorate_agent.storage import StorageBroken, value_files
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.runtime import ZoneRuntime
from quorate_lone_agent.process import opened_agent
from quorate_loopback.waiting import until

EIO = "IO error: Input/output error: While fdatasync: 000004.log"


class FailingSyncs:
    """A database whose next syncs fail with these errors; later ones succeed, as on Linux."""

    def __init__(self, storage: RocksStorage, errors: Iterable[str]) -> None:
        self._real = storage.database._db
        self._errors = list(errors)
        self.meanwhile: Callable[[], object] = lambda: None
        storage.database._db = cast("Any", self)

    def flush_wal(self, sync: bool) -> None:
        if self._errors:
            self.meanwhile()
            raise RuntimeError(self._errors.pop(0))
        self._real.flush_wal(sync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def write(storage: RocksStorage, number: int, value: bytes = b"value") -> None:
    storage.space(0, 0).put(b"%d" % number, Row(number, 1, 0, value))
    storage.commit()


def test_after_a_sync_that_failed_a_storage_neither_writes_nor_syncs(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "zone")
    write(storage, 1)
    storage.sync()
    synced = storage.database.synced_sequence
    write(storage, 2)
    FailingSyncs(storage, [EIO])

    with pytest.raises(StorageBroken, match=r"cannot sync.*fdatasync.*Way out: set"):
        storage.sync()
    with pytest.raises(StorageBroken, match=r"cannot sync.*fdatasync"):
        storage.sync()
    with pytest.raises(StorageBroken, match=r"cannot sync.*fdatasync"):
        write(storage, 3)

    storage.close()
    assert storage.database.synced_sequence == synced


def test_a_turn_whose_long_value_cannot_be_written_is_never_taken_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, data: bytes) -> None:
        raise OSError(5, "Input/output error", str(path))

    storage = RocksStorage(tmp_path / "zone")
    monkeypatch.setattr(value_files, "_write", fails)

    with pytest.raises(StorageBroken, match="Input/output error"):
        write(storage, 1, bytes(LONG_BYTES + 1))
    with pytest.raises(StorageBroken, match="Input/output error"):
        storage.commit()
    with pytest.raises(StorageBroken, match="Input/output error"):
        storage.sync()

    storage.close()
    again = RocksStorage(tmp_path / "zone")
    assert again.space(0, 0).get(b"1") is None
    again.close()


@pytest.mark.parametrize(
    ("why", "way_out"),
    [
        ("Input/output error", "set the agent's whole"),
        ("No space left on device", "free some space on the disk, and start"),
        ("Disk quota exceeded", "free some space on the disk, and start"),
    ],
)
def test_a_sync_that_the_disk_refused_counts_also_if_a_batch_finds_no_room_meanwhile(
    tmp_path: Path, why: str, way_out: str
) -> None:
    storage = RocksStorage(tmp_path / "zone")
    write(storage, 1)
    disk = FailingSyncs(storage, [f"IO error: {why}: While fdatasync: 000004.log: {why}"])
    disk.meanwhile = storage.database._no_room.set

    with pytest.raises(StorageBroken, match=f"{why}.*Way out: {way_out}"):
        storage.sync()

    assert storage.database.synced_sequence == 0
    storage.close()


@pytest.mark.parametrize(
    "error",
    ["IO error: Writer has previous error.", "IO error: No space left on device: While appending"],
)
def test_a_log_that_is_not_written_any_more_for_lack_of_room_is_synced_directly(
    tmp_path: Path, error: str
) -> None:
    storage = RocksStorage(tmp_path / "zone")
    write(storage, 1)
    disk = FailingSyncs(storage, [error])
    disk.meanwhile = storage.database._no_room.set

    storage.sync()

    assert storage.database.synced_sequence == storage.database.sequence
    storage.close()


def turn(name: str) -> Turn:
    return Turn([], [(name, cast("Any", name))], [], [], [], {}, True)


def runtime_of(
    storage: RocksStorage, synced: Callable[[Turn], object], broken: Callable[[str], object]
) -> ZoneRuntime:
    """One open zone with copies that do nothing."""
    record = SimpleNamespace(persistent=True, sync_writes=SyncWrites.ALWAYS, name="z")
    replicas = SimpleNamespace(record=record, uid="uid", waits_for_values=False)
    return ZoneRuntime(
        cast("Any", replicas),
        storage,
        cast("Any", None),
        lambda uid, turn: synced(turn),
        lambda: None,
        broken,
        ThreadPoolExecutor(2),
    )


def test_turns_whose_sync_failed_are_not_reported_with_a_later_one(tmp_path: Path) -> None:
    async def run() -> None:
        storage = RocksStorage(tmp_path / "zone")
        write(storage, 1)
        FailingSyncs(storage, [EIO])
        durable: list[Turn] = []
        broken: list[str] = []
        runtime = runtime_of(storage, durable.append, broken.append)
        runtime.take(turn("first"))
        runtime.take(turn("second"))
        await until(lambda: broken)
        assert runtime.is_durable, "nothing waits any more"
        runtime.take(turn("third"))
        await until(lambda: len(broken) == 2)
        assert durable == []
        storage.close()

    asyncio.run(run())


def test_a_turn_that_waits_for_long_values_is_not_durable_yet(tmp_path: Path) -> None:
    async def run() -> None:
        storage = RocksStorage(tmp_path / "zone")
        runtime = runtime_of(storage, lambda _: None, lambda _: None)
        assert runtime.is_durable

        runtime.replicas.waits_for_values = True

        assert not runtime.is_durable
        storage.close()

    asyncio.run(run())


def test_a_closed_storage_is_not_said_to_be_broken(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "zone")
    write(storage, 1)
    storage.close()

    storage.record_put(b"name", b"data")
    with pytest.raises(StorageBroken, match=r"cannot write: it is closed$"):
        storage.commit()
    with pytest.raises(StorageBroken, match=r"cannot read: it is closed$"):
        storage.space(0, 0).get(b"another")


def test_a_closed_storage_that_had_no_room_is_not_opened_again(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "zone")
    write(storage, 1)
    storage.database._no_room.set()
    storage.close()

    storage.record_put(b"name", b"data")
    with pytest.raises(StorageFull):
        storage.commit()

    RocksStorage(tmp_path / "zone").close()


# --- the agent


def _with_agent(path: Path, story: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        with opened_agent(path) as agent:
            await story(agent)

    asyncio.run(run())


class Spy:
    """Stands for the core, the links and the master's link: notes what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def noted(*_: object, **__: object) -> list[object]:
            self.asked.append(name)
            return []

        return noted


def test_an_agent_that_has_failed_ends_no_turn_and_sends_nothing(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        spy = Spy()
        agent.core = agent.links = agent._master = cast("Any", spy)
        agent._send([(MASTER, Heartbeat(1, 1))])
        assert spy.asked

        agent._fail("a broken disk")
        spy.asked.clear()
        agent._end_turn()
        agent._synced("uid", turn("written"))
        agent._send([(MASTER, Heartbeat(1, 1))])
        agent.on_message(cast("Any", spy), Heartbeat(1, 1))
        assert spy.asked == []
        assert agent.metrics.durable_turns == 0

    _with_agent(tmp_path, story)


def test_an_agent_that_has_closed_its_storages_ends_no_turn(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        spy = Spy()
        agent.core = cast("Any", spy)
        await agent.close()

        agent._end_turn()
        agent._synced("uid", turn("written"))

        assert spy.asked == []
        assert agent.failure == ""

    _with_agent(tmp_path, story)


def test_an_agent_that_cannot_hand_over_ends_all_the_same(tmp_path: Path) -> None:
    def fails(now: object) -> None:
        raise AssertionError("an invariant")

    async def story(agent: Agent) -> None:
        agent.core = cast("Any", SimpleNamespace(leave=fails))

        await agent.leave()

        assert agent.stopped.is_set()
        assert agent.failure == "AssertionError: an invariant"

    _with_agent(tmp_path, story)


@pytest.mark.parametrize("error", [StorageBroken("broken"), MemoryError(), StorageFull("full")])
def test_an_error_of_a_clients_command_that_concerns_all_ends_the_agent(
    tmp_path: Path, error: Exception
) -> None:
    async def story(agent: Agent) -> None:
        loop = asyncio.get_running_loop()
        agent._unhandled(loop, {"message": "a defect", "exception": ZeroDivisionError()})
        assert not agent.failure

        agent._unhandled(loop, {"message": "data_received() failed", "exception": error})
        assert agent.failure
        assert agent.stopped.is_set()

    _with_agent(tmp_path, story)
