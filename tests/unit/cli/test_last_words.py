"""Why a process ended, from its log."""

from pathlib import Path

import msgspec
import pytest

from quorate_cli.dev.process_states import not_running, process_states, stop_reason
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
)
from quorate_cli.processes.last_words import LINES, last_error, last_words
from quorate_cli.processes.process import Started, identify, write_started

INFO = '{"level": "INFO", "message": "listens on 127.0.0.1:7101"}\n'
ERROR = '{"level": "ERROR", "message": "agent agent-1 stops: the disk failed"}\n'
REFUSED = "quorate-agent: 000012.sst is corrupt. Way out: set it aside\n"
TRACEBACK = "Traceback (most recent call last):\n  File x\nKeyError: 3\n"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", "", "it logged nothing"),
        (INFO, "", "listens on 127.0.0.1:7101"),
        (INFO + REFUSED, REFUSED.strip(), REFUSED.strip()),
        (
            ERROR + INFO + "\n",
            "agent agent-1 stops: the disk failed",
            "listens on 127.0.0.1:7101",
        ),
        (INFO + TRACEBACK, "KeyError: 3", "KeyError: 3"),
        (ERROR + INFO * LINES, "", "listens on 127.0.0.1:7101"),
    ],
)
def test_an_error_is_what_is_no_log_line_or_one_of_level_error(
    tmp_path: Path, text: str, error: str, words: str
) -> None:
    log = tmp_path / "agent.log"
    log.write_text(text)

    assert last_error(log) == (f"{error} (log: {log})" if error else "")
    assert last_words(log) == f"{words} (log: {log})"


def test_what_an_earlier_process_said_is_not_said_of_the_last(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text(REFUSED + INFO)

    assert last_error(log, len(REFUSED)) == ""


def test_without_a_log_nothing_was_said(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none") == ""


class TestProcessStates:
    """Of a cluster whose agent ended."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> ClusterFolder:
        folder = ClusterFolder(tmp_path / ".quorate")
        agents = (AgentEntry("agent-1", 7101),)
        folder.write(ClusterEntry(FORMAT_VERSION, "main", agents, 2, 7000, False))
        folder.log("agent-1").parent.mkdir(parents=True)
        folder.log("agent-1").write_text(REFUSED)
        return folder

    def ended(self, folder: ClusterFolder, log_begin: int = 0) -> None:
        process = Started(1, "long ago", str(folder.path), log_begin)
        write_started(folder.pid_file("agent-1"), process)

    def test_an_agent_that_ended_by_itself_has_its_reason(self, folder: ClusterFolder) -> None:
        self.ended(folder)

        (_, agent) = process_states(folder)

        assert agent.pid is None
        assert agent.reason.startswith(REFUSED.strip())
        assert f"agent-1 is not running: {REFUSED.strip()}" in "\n".join(not_running(folder))

    def test_one_that_said_no_error_was_killed(self, folder: ClusterFolder) -> None:
        self.ended(folder, log_begin=len(REFUSED))

        assert "probably killed; `quorate dev start agent-1`" in stop_reason(folder, "agent-1")

    def test_one_that_a_command_ended_needs_no_reason(self, folder: ClusterFolder) -> None:
        assert stop_reason(folder, "agent-1") == ""
        assert "agent-1 is not running: start it with `quorate dev start agent-1`" in not_running(
            folder
        )

    def test_one_that_runs_has_none(self, folder: ClusterFolder) -> None:
        us = msgspec.structs.replace(identify(_own_pid(), str(folder.path)))
        write_started(folder.pid_file("agent-1"), us)

        assert stop_reason(folder, "agent-1") == ""


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)
