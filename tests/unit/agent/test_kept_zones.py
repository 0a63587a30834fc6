"""What a zone was declared to be is recorded; a disk without room for that stops nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.settings import DEFAULTS
from quorate_agent import data_folder
from quorate_agent.data_folder import DataFolder
from quorate_agent.descriptors import Descriptors
from quorate_agent.server import Agent
from quorate_agent.settings import AgentSettings

RECORD = ZoneRecord("uid-1", "books", 16, 3)


def _with_agent(path: Path, story: Callable[[Agent], None]) -> None:
    async def run() -> None:
        folder = DataFolder.open(path, cluster="demo", node="agent-1")
        folder.zone_path(RECORD.uid)
        here = "127.0.0.1"
        settings = AgentSettings("agent-1", path, "demo", here, 0, here, here, 0)
        agent = Agent(settings, folder, {}, DEFAULTS, Descriptors(4096))
        try:
            story(agent)
        finally:
            folder.close()

    asyncio.run(run())


def test_a_record_without_room_is_warned_of_once_and_kept_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: Path, text: str) -> None:
        raise OSError(28, "No space left on device", str(file))

    def story(agent: Agent) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(data_folder, "write_durably", full)
            assert [agent.keep_zone(RECORD) for _ in range(3)] == [False] * 3
        assert agent.kept_zones() == []
        (warning,) = caplog.messages
        assert "zone books" in warning
        assert f"No space left on device: '{tmp_path}/zone-uid-1.json'" in warning
        assert "it is tried again" in warning

        assert agent.keep_zone(RECORD)
        assert agent.kept_zones() == [RECORD]
        with monkeypatch.context() as patch:
            patch.setattr(data_folder, "write_durably", full)
            assert not agent.keep_zone(RECORD)
        assert len(caplog.messages) == 2

    _with_agent(tmp_path, story)
