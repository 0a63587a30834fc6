"""`quorate repair`: a plan or its execution, never both, as a process of its own."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quorate_cli.commands import repair as module
from quorate_cli.commands.every import app
from quorate_cli.copies.validation import IfKilled, run_validation
from quorate_cli.terminal.problem import Problem
from quorate_spark.repairing.decide import Strategy

ZONE = {
    "apiVersion": "quorate.io/v1alpha1",
    "kind": "Zone",
    "metadata": {"name": "books", "uid": "uid-7"},
    "spec": {"clusterRef": {"name": "main"}, "partitions": 4, "replicas": 3},
}
CLUSTER = {
    "apiVersion": "quorate.io/v1alpha1",
    "kind": "StorageCluster",
    "metadata": {"name": "main"},
    "spec": {"external": {"addresses": ["127.0.0.1:7101", "127.0.0.1:7102"]}},
}
KILLED = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that were run; each ended with 1."""
    commands: list[list[str]] = []

    def fetch(api: object, kind: Any, name: str) -> Any:
        return ZONE if name == "books" else CLUSTER

    def run(command: list[str], if_killed: IfKilled) -> int:
        commands.append(command)
        return 1

    monkeypatch.setattr(module.resources, "fetch", fetch)
    monkeypatch.setattr(module, "run_validation", run)
    return commands


def invoke(*arguments: str) -> Any:
    words = ["repair", "books", "--server", "127.0.0.1:1", *arguments]
    return CliRunner().invoke(app, words, catch_exceptions=True)


def options_of(command: list[str]) -> dict[str, str]:
    return {word: value for word, value in pairwise(command) if word.startswith("--")}


def test_a_plan_is_of_the_declared_zone(ran: list[list[str]]) -> None:
    ended = invoke("--strategy", "LWW", "--level", "digest")

    assert ended.exit_code == 1
    options = options_of(ran[0])
    assert ran[0][ran[0].index("repair") + 1] == "books"
    assert options["--plan"] == "repair-books.parquet"
    assert (options["--strategy"], options["--level"]) == ("LWW", "digest")
    assert (options["--zone-uid"], options["--partitions"], options["--replicas"]) == (
        "uid-7",
        "4",
        "3",
    )
    assert options["--agents"] == "127.0.0.1:7101,127.0.0.1:7102"
    assert "--execute" not in options


def test_an_execution_takes_the_plan_as_it_is(ran: list[list[str]]) -> None:
    assert invoke("--execute", "plan.parquet", "--json").exit_code == 1

    options = options_of(ran[0])
    assert options["--execute"] == "plan.parquet"
    assert not {"--plan", "--strategy", "--level"} & set(options)
    assert ran[0][-1] == "--json"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "write --strategy and one of LWW, PRIMARY, RELATIVE_MAJORITY, REMOVE, CHECK_ONLY"),
        (("--execute", "p", "--strategy", "LWW"), "leave out --strategy and --plan"),
        (("--execute", "p", "--plan", "q"), "leave out --strategy and --plan"),
    ],
)
def test_it_is_either_a_plan_or_an_execution(
    ran: list[list[str]], arguments: tuple[str, ...], sentence: str
) -> None:
    problem = invoke(*arguments).exception

    assert isinstance(problem, Problem)
    assert (sentence in str(problem), problem.exit_code) == (True, 2)
    assert not ran


def test_the_strategies_are_those_of_the_tool_that_decides() -> None:
    assert [*module.RepairStrategy] == [*Strategy]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--strategy", "LWW"), 2, "nothing was changed"),
        (("--execute", "my plan"), 1, "some keys may be repaired: execute 'my plan' again"),
    ],
)
def test_a_repair_that_is_killed_says_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
    ran: list[list[str]],
    arguments: tuple[str, ...],
    code: int,
    sentence: str,
) -> None:
    monkeypatch.setattr(module, "run_validation", run_validation)
    monkeypatch.setattr(module, "tool_command", lambda *of: KILLED)

    problem = invoke(*arguments).exception

    assert isinstance(problem, Problem)
    assert problem.exit_code == code
    assert str(problem).endswith(f"; {sentence}")


def test_a_plan_is_written_where_it_is_said(ran: list[list[str]], tmp_path: Path) -> None:
    invoke("--strategy", "REMOVE", "--plan", str(tmp_path / "p"))

    assert options_of(ran[0])["--plan"] == str(tmp_path / "p")
