"""Names of the user's, such as keys and paths, are printed as they are."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from quorate_cli.commands import objects
from quorate_cli.commands.every import app
from quorate_cli.processes.cluster_folder import FORMAT_VERSION, ClusterEntry, ClusterFolder
from quorate_cli.terminal.teller import PlainConsole, Teller

WORDS = ("x[/x]", "cart[items]", "[id]/.quorate", "user:key:1", "[bold]")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("console", [PlainConsole(), Teller()])
def test_no_word_is_markup(
    capsys: pytest.CaptureFixture[str], word: str, console: PlainConsole
) -> None:
    console.print(f"agent-1: {word}")

    assert capsys.readouterr().out == f"agent-1: {word}\n"


@pytest.mark.parametrize("key", WORDS)
def test_a_damaged_key_is_named_as_it_is(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    folder = SimpleNamespace(
        agent_address=lambda _agent: "here", read=lambda: SimpleNamespace(cluster="main")
    )
    cluster = SimpleNamespace(check_known=lambda _agent: None, folder=folder)
    monkeypatch.setattr(objects, "dev_cluster", lambda _folder: cluster)
    monkeypatch.setattr(objects, "asked_agent", lambda *_of: None)
    monkeypatch.setattr(objects, "damage_copy", lambda *_of: None)

    ended = CliRunner().invoke(app, ["debug", "damage", "books", key, "--agent", "agent-1"])

    assert ended.exception is None
    assert f"its copy of {key} in zone books now differs" in ended.output


@pytest.mark.parametrize("name", ["[id]", "[/id]", ":key:"])
def test_the_folder_of_a_cluster_is_named_as_it_is(tmp_path: Path, name: str) -> None:
    folder = ClusterFolder(tmp_path / name)
    folder.write(ClusterEntry(FORMAT_VERSION, "main", (), 1, 7000, False))

    shown = CliRunner().invoke(app, ["dev", "status", "--folder", str(folder.path)])
    deleted = CliRunner().invoke(
        app, ["dev", "down", "--delete-data", "--folder", str(folder.path)]
    )

    assert (shown.exception, deleted.exception) == (None, None)
    assert f"mainin{folder.path}" in "".join(shown.output.split()), "the title has several lines"
    assert f"folder{folder.path}:deleted" in "".join(deleted.output.split())
