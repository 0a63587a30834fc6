"""What a running agent writes into its folder: a disk without room for that ends nothing."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.masterships import MastershipNotKept
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode
from quorate.protocol.settings import DEFAULTS
from quorate_agent.folder import data_folder, identity
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.machine.clock import MachineClock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.process.server import Agent
from quorate_agent.process.settings import AgentSettings
from quorate_loopback.sides import SECRET

RECORD = ZoneRecord("uid-1", "books", 16, 3)


def _with_agent(path: Path, story: Callable[[Agent], Awaitable[None] | None]) -> None:
    async def run() -> None:
        folder = DataFolder.open(path, cluster="demo", node="agent-1", cluster_id="id")
        folder.zone_path(RECORD.uid)
        here = "127.0.0.1"
        settings = AgentSettings("agent-1", path, "demo", here, 0, here, 0, here, here, here, 0)
        agent = Agent(
            settings, folder, {}, DEFAULTS, Descriptors(4096), SECRET.keys(), MachineClock()
        )
        try:
            going_on = story(agent)
            if going_on is not None:
                await going_on
        finally:
            folder.close()

    asyncio.run(run())


async def _remove(agent: Agent) -> bool:
    """Have the zone removed to the end of it; whether the master was told that it is gone."""
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent.core, "zone_removed", told.append)
        is_gone = agent.remove_zone(RECORD.uid)
        await agent._removals.finish()
    return is_gone or bool(told)


def _full(file: Path, text: str) -> None:
    raise OSError(28, "No space left on device", str(file))


def test_a_record_without_room_is_warned_of_once_and_kept_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def story(agent: Agent) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(data_folder, "write_durably", _full)
            assert [agent.keep_zone(RECORD) for _ in range(3)] == [False] * 3
        assert agent.kept_zones() == []
        (warning,) = caplog.messages
        assert "zone books" in warning
        assert f"No space left on device: '{tmp_path}/zone-uid-1.json'" in warning
        assert "it is tried again" in warning

        assert agent.keep_zone(RECORD)
        assert agent.kept_zones() == [RECORD]
        with monkeypatch.context() as patch:
            patch.setattr(data_folder, "write_durably", _full)
            assert not agent.keep_zone(RECORD)
        assert len(caplog.messages) == 2

    _with_agent(tmp_path, story)


def test_the_removal_of_a_zone_without_room_is_warned_of_once_and_done_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(agent: Agent) -> None:
        data = agent.folder.zone_path(RECORD.uid)
        agent.core = AgentCore(agent._hello(), agent, DEFAULTS, agent._now())
        with monkeypatch.context() as patch:
            patch.setattr(identity, "write_durably", _full)
            assert [await _remove(agent) for _ in range(3)] == [False] * 3
        assert data.exists(), "what is recorded must be there at the next start"
        (warning,) = caplog.messages
        assert f"zone {RECORD.uid}: that it was deleted cannot be recorded" in warning
        assert "No space left on device" in warning

        assert await _remove(agent)
        assert not data.exists()
        assert agent.folder.zone_uids() == []
        assert len(caplog.messages) == 1

    _with_agent(tmp_path, story)


def test_a_zone_is_gone_only_when_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(path: object, *_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy", str(path))

    async def story(agent: Agent) -> None:
        data = agent.folder.zone_path(RECORD.uid)
        (data / "file").write_text("data")
        agent.core = AgentCore(agent._hello(), agent, DEFAULTS, agent._now())
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", busy)
            assert [await _remove(agent) for _ in range(3)] == [False] * 3
        assert (data / "file").exists()
        (warning,) = caplog.messages
        assert f"zone {RECORD.uid}: its data cannot be removed" in warning
        assert "Device or resource busy" in warning

        assert await _remove(agent)
        assert not data.exists()
        assert agent.remove_zone(RECORD.uid), "asked again, it is still gone"

    _with_agent(tmp_path, story)


def test_a_mastership_without_room_is_refused_and_taken_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def story(agent: Agent) -> None:
        agent.core = AgentCore(agent._hello(), agent, DEFAULTS, agent._now())
        with monkeypatch.context() as patch:
            patch.setattr(identity, "write_durably", _full)
            for _ in range(3):
                with pytest.raises(MastershipNotKept, match=f"on the disk of {tmp_path}"):
                    agent.raise_master_term(7, "word")
            assert "free some space" in _refusal(agent, 7), (
                "it must not be connected again and again"
            )
            assert _refusal(agent, 8) == "", "its greeting alone changes nothing"
        (warning,) = caplog.messages
        assert "mastership 7 cannot be recorded" in warning
        assert agent.folder.master_term == 0

        assert _refusal(agent, 7) == ""
        assert (agent.folder.master_term, agent.folder.master_word) == (7, "word")

    _with_agent(tmp_path, story)


def _refusal(agent: Agent, term: int) -> str:
    """Why a master that greets is refused; empty: it is not."""
    hello = Hello(FORMAT_VERSION, "master", "demo", "", master_term=term, master_word="word")
    refused = agent._accept(hello)
    assert refused is None or refused.code == RefusalCode.NOT_KEPT
    return "" if refused is None else refused.reason


def test_links_are_accepted_only_as_far_as_descriptors_are_kept_for_them(tmp_path: Path) -> None:
    def story(agent: Agent) -> None:
        assert agent.links.settings.links_max == Descriptors(4096).links == 256

    _with_agent(tmp_path, story)
