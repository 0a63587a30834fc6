"""`quorate export|verify|import` run processes, and the Zone says what is imported into it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quorate.wire.zone import RESTORING
from quorate_cli.commands import export as module
from quorate_cli.commands.every import app
from quorate_cli.terminal.problem import Problem

ZONE = {
    "apiVersion": "quorate.io/v1alpha1",
    "kind": "Zone",
    "spec": {"clusterRef": {"name": "main"}, "partitions": 4, "replicas": 3},
}
CLUSTER = {
    "apiVersion": "quorate.io/v1alpha1",
    "kind": "StorageCluster",
    "metadata": {"name": "main"},
    "spec": {"external": {"addresses": ["127.0.0.1:7101", "127.0.0.1:7102"]}},
}


class World:
    """What was run, with which annotation of the Zone; `codes`: how the next runs end."""

    def __init__(self) -> None:
        self.ran: list[tuple[list[str], str]] = []
        self.codes: list[int] = []
        self.annotations = {"mine": "1"}

    def fetch(self, api: object, kind: Any, name: str) -> Any:
        """The zone or its cluster."""
        if kind.plural == "storageclusters":
            return CLUSTER
        metadata = {"name": "books", "uid": "uid-7", "annotations": self.annotations}
        return {**ZONE, "metadata": metadata}

    def put(self, path: str, body: Any, kind: type) -> Any:
        """The zone, as it is declared anew."""
        assert body["spec"] == ZONE["spec"]
        self.annotations = body["metadata"]["annotations"]
        return body

    def run(self, command: list[str]) -> int:
        """Note the command, and the annotation while it ran."""
        self.ran.append((command, self.annotations.get(RESTORING, "")))
        return self.codes.pop(0) if self.codes else 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(module.resources, "fetch", world.fetch)
    monkeypatch.setattr(module.OperatorApi, "put", lambda api, *given: world.put(*given))
    monkeypatch.setattr(module, "run_validation", world.run)
    return world


def invoke(*arguments: str) -> Any:
    words = [*arguments, "--server", "127.0.0.1:1"]
    return CliRunner().invoke(app, words, catch_exceptions=True)


def options_of(command: list[str]) -> dict[str, str]:
    return {word: value for word, value in pairwise(command) if word.startswith("--")}


@pytest.mark.parametrize("words", [("export", "books"), ("verify",), ("import", "books")])
def test_credentials_in_a_target_reach_no_arguments(world: World, words: tuple[str, ...]) -> None:
    target = "s3://AKIAX:se/cret@bucket/x"
    what, *zone = words
    arguments = [what, target, *zone] if what == "import" else [*words, target]
    server = [] if what == "verify" else ["--server", "127.0.0.1:1"]

    ended = CliRunner().invoke(app, [*arguments, *server])

    assert isinstance(ended.exception, Problem)
    assert ended.exception.exit_code == 2
    assert "cret" not in str(ended.exception)
    assert world.ran == []


def test_an_export_is_of_the_declared_zone(world: World) -> None:
    world.codes = [2]

    assert invoke("export", "books", "there", "--verify", "--json").exit_code == 2

    (command, annotation) = world.ran[0]
    options = options_of(command)
    assert command[command.index("export") + 1] == "books"
    assert options["--target"] == str(Path("there").absolute())
    assert (options["--zone-uid"], options["--partitions"], options["--replicas"]) == (
        "uid-7",
        "4",
        "3",
    )
    assert '"clusterRef"' in options["--zone-spec"]
    assert {"--verify", "--json"} <= set(command)
    assert annotation == ""


def test_an_export_is_verified_without_a_cluster(world: World) -> None:
    ended = CliRunner().invoke(app, ["verify", "s3://bucket/x"])

    assert ended.exit_code == 0
    assert world.ran[0][0][-2:] == ["verify", "s3://bucket/x"]


def test_the_zone_has_an_annotation_until_an_import_is_done(world: World) -> None:
    assert invoke("import", "s3://bucket/x", "books", "--json").exit_code == 0

    (check, before), (run, during) = world.ran
    assert (check[-1], before) == ("--check", "")
    assert during == "s3://bucket/x"
    assert "--json" in run
    assert not {"--continue", "--into-non-empty", "--check"} & set(run)
    assert world.annotations == {"mine": "1"}


@pytest.mark.parametrize("code", [1, 2, 143])
def test_an_import_that_is_not_done_goes_on_when_it_is_run_again(world: World, code: int) -> None:
    world.codes = [0, code]
    assert invoke("import", "s3://bucket/x", "books").exit_code == code
    assert world.annotations == {"mine": "1", RESTORING: "s3://bucket/x"}

    refused = invoke("import", "s3://bucket/y", "books")
    assert refused.exit_code != 0
    assert "an import of s3://bucket/x has begun and is not done" in str(refused.exception)
    assert len(world.ran) == 2

    assert invoke("import", "s3://bucket/x", "books").exit_code == 0
    assert "--continue" in world.ran[2][0]
    assert "--continue" in world.ran[3][0]
    assert world.annotations == {"mine": "1"}


def test_an_import_that_may_not_begin_leaves_the_zone_as_it_is(world: World) -> None:
    world.codes = [2]

    assert invoke("import", "s3://bucket/x", "books", "--into-non-empty").exit_code == 2

    assert len(world.ran) == 1
    assert "--into-non-empty" in world.ran[0][0]
    assert world.annotations == {"mine": "1"}
