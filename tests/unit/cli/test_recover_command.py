"""`quorate recover cancel`: what it asks of the operator and what it prints."""

import pytest
from typer.testing import CliRunner

from quorate.protocol.status import Cancellation, MigrationStatus
from quorate_cli.commands.every import app
from quorate_cli.objects.operator_api import OperatorApi
from quorate_cli.terminal.problem import Problem

MOVE = MigrationStatus(5, "MOVE", "agent-1", "agent-4", "filling", version=17)
SERVER = ["--server", "127.0.0.1:9"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """What the operator was asked."""
    seen: list[tuple[str, object]] = []

    def ask(api: OperatorApi, path: str, body: object, kind: type) -> Cancellation:
        seen.append((path, body))
        return Cancellation((MOVE,))

    monkeypatch.setattr(OperatorApi, "ask", ask)
    return seen


def test_without_yes_it_says_what_it_would_do(asked: list[tuple[str, object]]) -> None:
    done = CliRunner().invoke(app, ["recover", "cancel", "books", "5", "--version", "17", *SERVER])

    assert asked == [("/zones/books/cancel", {"versions": {5: 17}, "dryRun": True})]
    assert done.output == (
        "zone books, partition 5: MOVE agent-1 > agent-4 would be cancelled\n"
        "nothing was changed: --yes does it\n"
    )


def test_with_yes_it_is_done(asked: list[tuple[str, object]]) -> None:
    command = ["recover", "cancel", "books", "5", "6", "--version", "17", "--version", "9", "--yes"]
    done = CliRunner().invoke(app, [*command, *SERVER])

    assert asked == [("/zones/books/cancel", {"versions": {5: 17, 6: 9}, "dryRun": False})]
    assert done.output == "zone books, partition 5: MOVE agent-1 > agent-4 cancelled\n"


@pytest.mark.parametrize("partitions", [["5", "6"], ["5", "5", "6"]])
def test_each_partition_needs_its_version(
    asked: list[tuple[str, object]], partitions: list[str]
) -> None:
    command = ["recover", "cancel", "books", *partitions, "--version", "17"]
    done = CliRunner().invoke(app, [*command, *SERVER])

    assert isinstance(done.exception, Problem)
    assert "name each partition once, and for each its row" in str(done.exception)
    assert asked == []
