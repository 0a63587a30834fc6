"""A command acts on the cluster that the user has named."""

from typing import Any

import pytest
from typer.testing import CliRunner

from quorate_cli.commands import aside, cli, events, export, objects, plan, recover, refill, repair
from quorate_cli.commands.every import app
from quorate_cli.terminal.problem import Problem

COMMANDS = (
    "get zones",
    "describe zones",
    "delete zone books",
    "status",
    "validate books",
    "export books there",
    "import there books",
    "repair books --strategy LWW",
    "plan books",
    "events",
    "cli books",
    "recover cancel books --partitions 1",
    "aside list",
    "debug refill books 0 --agent agent-1",
)
ENVIRONMENT = {"QUORATE_SERVER": "10.0.0.1:7"}


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that were named; none of them can be reached."""
    found: list[str] = []

    def parse(server: str, folder: object) -> None:
        found.append(server)
        raise Problem("it cannot be reached")

    for module in (aside, cli, events, export, objects, plan, recover, refill, repair):
        if hasattr(module, "parse_server"):
            monkeypatch.setattr(module, "parse_server", parse)
    return found


def invoke(command: str, *options: str, environment: dict[str, str]) -> Any:
    name, *words = command.split()
    group = [name, words.pop(0)] if name in ("recover", "aside", "debug") else [name]
    return CliRunner().invoke(app, [*group, *options, *words], env=environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_and_a_server_of_the_environment_are_refused(
    named: list[str], command: str
) -> None:
    ended = invoke(command, "--folder", "try", environment=ENVIRONMENT)

    said = " ".join(ended.output.replace("│", " ").split())
    assert "QUORATE_SERVER names 10.0.0.1:7, and --folder names try" in said
    assert "unset QUORATE_SERVER, or write --server" in said
    assert (ended.exit_code, named) == (2, [])


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--folder", "try", "--server", "10.0.0.1:7"], {}),
        (["--folder", "try", "--server", "10.0.0.1:7"], {"QUORATE_SERVER": "10.9.9.9:9"}),
        ([], ENVIRONMENT),
        ([], {**ENVIRONMENT, "QUORATE_FOLDER": "try"}),
        (["--server", "10.0.0.1:7"], {"QUORATE_FOLDER": "try"}),
    ],
)
def test_a_server_is_taken_with_the_secrets_of_a_folder(
    named: list[str], options: list[str], environment: dict[str, str]
) -> None:
    ended = invoke("delete zone books", *options, environment=environment)

    assert named == ["10.0.0.1:7"], ended.output
