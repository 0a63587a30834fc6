"""The word of the agent's process, where Kubernetes reads it when the container has ended."""

from pathlib import Path

import pytest

from quorate.facts.topology import LAST_WORD
from quorate_agent.process import last_word
from quorate_agent.process.last_word import leave_word


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination-log"
    monkeypatch.setattr(last_word, "TERMINATION_LOG", path)
    return path


def test_the_word_replaces_that_of_the_process_before(log: Path) -> None:
    log.write_text(f"{LAST_WORD}0123456789abcdef of an earlier one")

    leave_word("0a1b")

    assert log.read_text() == "process 0a1b\n"


def test_outside_of_kubernetes_nothing_is_written(log: Path) -> None:
    leave_word("0a1b")
    assert not log.exists()


def test_an_agent_that_may_not_write_it_starts_nevertheless(log: Path) -> None:
    log.mkdir()
    leave_word("0a1b")
