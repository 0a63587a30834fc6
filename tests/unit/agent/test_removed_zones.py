"""The removal of a deleted zone: its clients end first, and other zones go on meanwhile."""

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import Row, ZoneRefused
from quorate_agent.folder import data_folder
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.folder.identity import FolderRefused
from quorate_agent.machine.clock import MachineClock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.process.server import Agent
from quorate_agent.process.settings import AgentSettings
from quorate_agent.storage.memory import FREED_AT_ONCE, MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_lone_agent import agent as lone_agent
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until

RECORD = ZoneRecord("uid-1", "books", 16, 3)


def test_a_client_may_read_from_a_copy_until_its_connection_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = RocksStorage(tmp_path / "zone")
    monkeypatch.setattr(lone_agent, "MemoryStorage", lambda *_: storage)
    agent = lone_agent.Agent()
    client = agent.writer()
    assert client.ask(b"READONLY") == [b"OK"]
    agent.replicas.close()

    assert client.ask(b"GET", b"not there") == [None]

    storage.close()


class SlowRemoval:
    """Deletes files when `allowed`; notes whether that was done on the event loop's thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = threading.Event()
        self.began = threading.Event()
        self.on_loop = False
        self._rmtree = shutil.rmtree
        monkeypatch.setattr(data_folder.shutil, "rmtree", self._remove)

    def _remove(self, path: Path, **options: Any) -> None:
        self.on_loop |= threading.current_thread() is threading.main_thread()
        self.began.set()
        if not self.on_loop:
            assert self.allowed.wait(30)
        self._rmtree(path, **options)


def _with_zone(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Agent, list[str]], Awaitable[None]],
) -> None:
    """An agent with one stored zone that no master has named; the zones told to be gone."""

    async def run() -> None:
        folder = DataFolder.open(path, cluster="demo", node="agent-1", cluster_id="id")
        storage = RocksStorage(folder.zone_path(RECORD.uid))
        storage.space(0, 0).put(b"key", Row(1, 1, 0, b"value"))
        storage.commit()
        here = "127.0.0.1"
        settings = AgentSettings("agent-1", path, "demo", here, 0, here, 0, here, here, here, 0)
        agent = Agent(
            settings,
            folder,
            {RECORD.uid: storage},
            DEFAULTS,
            Descriptors(4096),
            SECRET.keys(),
            MachineClock(),
        )
        agent.core = AgentCore(agent._hello(), agent, DEFAULTS, agent._now())
        told: list[str] = []
        monkeypatch.setattr(agent.core, "zone_removed", told.append)
        try:
            await story(agent, told)
        finally:
            folder.close()

    asyncio.run(run())


def test_files_of_a_deleted_zone_are_removed_while_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(agent: Agent, told: list[str]) -> None:
        removal = SlowRemoval(monkeypatch)
        assert not agent.remove_zone(RECORD.uid)
        assert agent.folder.zone_uids() == [], "the next start finishes an interrupted removal"
        await until(removal.began.is_set)
        assert not removal.on_loop

        assert not agent.remove_zone(RECORD.uid), "asked again, it is still in progress"
        with pytest.raises(ZoneRefused, match="zone books: it is being deleted here"):
            agent.open_zone(RECORD)
        assert told == []

        removal.allowed.set()
        await until(lambda: told)
        assert told == [RECORD.uid]
        assert list((tmp_path / "zones").iterdir()) == []
        assert agent.remove_zone(RECORD.uid), "asked again, it is still gone"

    _with_zone(tmp_path, monkeypatch, story)


def test_the_folder_stays_locked_until_a_removal_in_progress_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(agent: Agent, told: list[str]) -> None:
        removal = SlowRemoval(monkeypatch)
        assert not agent.remove_zone(RECORD.uid)
        await until(removal.began.is_set)
        agent.stopped.set()
        closing = asyncio.create_task(agent.close())
        await asyncio.wait([closing], timeout=0.1)
        assert not closing.done()
        with pytest.raises(FolderRefused):
            DataFolder.open(tmp_path, cluster="demo", node="agent-1", cluster_id="id")

        removal.allowed.set()
        await closing
        assert list((tmp_path / "zones").iterdir()) == []
        assert told == [], "its links are closed; the master asks the next process"

    _with_zone(tmp_path, monkeypatch, story)


def test_rows_and_updates_of_a_deleted_zone_in_memory_are_freed_without_a_garbage_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(agent: Agent, told: list[str]) -> None:
        engine = MemoryStorage()
        space = engine.space(0, 0)
        for counter in range(1, 2 * FREED_AT_ONCE + 2):
            space.put(b"%d" % counter, Row(counter, 1, 0, b"value"))
            engine.log_put(0, counter, 1, b"update")
        agent._engines["in memory"] = engine
        closed: list[str] = []
        monkeypatch.setattr(agent._removals, "_closed", closed.append)

        agent.remove_zone("in memory")
        await until(lambda: closed)

        assert space.scan(None, 1, 1) == []
        assert engine.log_read(0, 1, 1 << 40, 1) == []

    _with_zone(tmp_path, monkeypatch, story)
