"""`quorate recover`: what it asks of the operator and what it prints."""

from typing import Any

import pytest
from typer.testing import CliRunner

from quorate.protocol.recovery import PartitionAnswer, RecoveryAnswer
from quorate_cli.commands.every import app
from quorate_cli.objects.operator_api import OperatorApi
from quorate_cli.terminal.problem import Problem

SERVER = ["--server", "127.0.0.1:9"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The questions to the operator; it answers that row 17 of each partition is changed."""
    seen: list[tuple[str, Any]] = []

    def ask(api: OperatorApi, path: str, body: Any, kind: type) -> RecoveryAnswer:
        seen.append((path, body))
        named = [int(partition) for partition in body["versions"]]
        return RecoveryAnswer(tuple(PartitionAnswer(each, 17, "so it is") for each in named))

    monkeypatch.setattr(OperatorApi, "ask", ask)
    return seen


def body(action: str, versions: dict[str, int], dry_run: bool, **others: object) -> object:
    named = {"action": action, "versions": versions, "node": "", "erase": False}
    return "/zones/books/recover", named | {"dryRun": dry_run} | others


def test_without_yes_it_says_what_it_would_do_and_how_to_do_it(
    asked: list[tuple[str, Any]],
) -> None:
    done = CliRunner().invoke(app, ["recover", "cancel", "books", "--partitions", "5", *SERVER])

    assert asked == [body("Cancel", {"5": 0}, True)]
    assert done.output == (
        "zone books, partition 5 (row 17): so it is\n"
        "nothing was changed; this does it:\n"
        "  quorate recover cancel books --partitions 5 --versions 17 --server 127.0.0.1:9 --yes\n"
    )


@pytest.mark.parametrize(
    ("place", "environment", "printed"),
    [
        ([], {}, ""),
        (["--folder", "./my stage"], {}, " --folder 'my stage'"),
        (["--folder", "/a/[b]"], {}, " --folder '/a/[b]'"),
        ([], {"QUORATE_FOLDER": "/stage"}, " --folder /stage"),
        (["--folder", ".quorate"], {"QUORATE_FOLDER": "/stage"}, " --folder .quorate"),
        ([], {"QUORATE_SERVER": "[::1]:9"}, " --server '[::1]:9' --folder .quorate"),
        (["--server", "h:9", "--folder", "s"], {}, " --server h:9 --folder s"),
    ],
)
def test_the_command_that_does_it_names_the_same_cluster(
    asked: list[tuple[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    place: list[str],
    environment: dict[str, str],
    printed: str,
) -> None:
    monkeypatch.setattr(
        "quorate_cli.dev.dev_cluster.DevCluster.api", lambda self: OperatorApi("h", 9, token="")
    )
    command = ["recover", "cancel", "books", "--partitions", "5", *place]
    done = CliRunner().invoke(app, command, env=environment)

    assert done.output.endswith(f" --partitions 5 --versions 17{printed} --yes\n")


def test_with_yes_it_is_done(asked: list[tuple[str, Any]]) -> None:
    command = "recover reset books --partitions 5,8-9 --versions 17,3,4 --to agent-1 --yes"
    done = CliRunner().invoke(app, [*command.split(), *SERVER])

    assert asked == [body("Reset", {"5": 17, "8": 3, "9": 4}, False, node="agent-1")]
    assert done.output == "".join(
        f"zone books, partition {each} (row 17): so it is\n" for each in (5, 8, 9)
    )


def test_the_command_that_does_it_names_the_same_agent(asked: list[tuple[str, Any]]) -> None:
    command = "recover reset books --partitions 5-6 --to agent-1"
    done = CliRunner().invoke(app, [*command.split(), *SERVER])

    assert done.output.endswith(
        "  quorate recover reset books --partitions 5,6 --versions 17,17 --to agent-1"
        " --server 127.0.0.1:9 --yes\n"
    )


def test_a_copy_is_erased_on_the_agent_that_is_named(asked: list[tuple[str, Any]]) -> None:
    command = "recover restart books --partitions 5 --node agent-2 --erase"
    done = CliRunner().invoke(app, [*command.split(), *SERVER])

    assert asked == [body("Restart", {"5": 0}, True, node="agent-2", erase=True)]
    assert " --partitions 5 --versions 17 --node agent-2 --erase --server" in done.output


def test_lost_partitions_are_reopened(asked: list[tuple[str, Any]]) -> None:
    command = "recover reopen books --partitions 5 --versions 17 -y"
    CliRunner().invoke(app, [*command.split(), *SERVER])

    assert asked == [body("Reopen", {"5": 17}, False)]


def test_invalid_rows_are_rebuilt(asked: list[tuple[str, Any]]) -> None:
    command = "recover rebuild books --partitions 5 --versions 40 -y"
    CliRunner().invoke(app, [*command.split(), *SERVER])

    assert asked == [body("Rebuild", {"5": 40}, False)]


@pytest.mark.parametrize(
    ("partitions", "versions", "problem"),
    [
        ("5,6", "17", "name the row of each partition, in the same order"),
        ("5,5", "17,17", "name each partition once"),
        ("5,x", "17,17", "--partitions 5,x: 'x' is no number: write for example 3,5,8-11"),
        ("5", "1-", "--versions 1-: '1-' is no number"),
        ("8-3", "17", "--partitions 8-3: '8-3' is no range: write for example 8-11"),
        ("0-999999999", "17", "'0-999999999' is no range"),
    ],
)
def test_partitions_and_versions_that_do_not_fit_are_refused(
    asked: list[tuple[str, Any]], partitions: str, versions: str, problem: str
) -> None:
    command = ["recover", "cancel", "books", "--partitions", partitions, "--versions", versions]
    done = CliRunner().invoke(app, [*command, *SERVER])

    assert isinstance(done.exception, Problem)
    assert problem in str(done.exception)
    assert asked == []
