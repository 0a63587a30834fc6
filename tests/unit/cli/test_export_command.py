"""`quorate export|verify|import` run processes, and the Zone says what is imported into it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from typer.testing import CliRunner

from quorate.wire.restoring import RESTORING, Restoring
from quorate_cli.commands import export as module
from quorate_cli.commands.every import app
from quorate_cli.copies.validation import IfKilled
from quorate_cli.objects.operator_api import Changed, NotThere
from quorate_cli.processes.cluster_folder import FORMAT_VERSION, ClusterEntry, ClusterFolder
from quorate_cli.terminal.problem import Problem

ZONE: dict[str, Any] = {
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
    """The commands that were run, and the Zone's annotation then; `codes`: how the next runs end.

    `meanwhile` is called while a command runs, `before_put` one by one before a change is stored.
    """

    def __init__(self) -> None:
        self.ran: list[tuple[list[str], str]] = []
        self.codes: list[int] = []
        self.annotations = {"mine": "1"}
        self.uid, self.generation = "uid-7", 3
        self.spec: dict[str, Any] = ZONE["spec"]
        self.meanwhile: Callable[[], None] = lambda: None
        self.before_put: list[Callable[[], None]] = []

    def fetch(self, api: object, kind: Any, name: str) -> Any:
        """The zone or its cluster."""
        if kind.plural == "storageclusters":
            return CLUSTER
        metadata = {
            "name": "books",
            "uid": self.uid,
            "generation": self.generation,
            "annotations": self.annotations,
        }
        return {**ZONE, "spec": self.spec, "metadata": metadata}

    def put(self, path: str, body: Any, kind: type) -> Any:
        """The zone, as it is declared anew, if it is as it was seen."""
        if self.before_put:
            self.before_put.pop(0)()
        seen = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
        noted = self.annotations.get(RESTORING, "")
        if seen != {"uid": self.uid, "generation": f"{self.generation}", "restoring": noted}:
            raise Changed("books has changed meanwhile")
        assert body["spec"] == self.spec
        told = body["metadata"]["annotations"]
        self.annotations = {name: value for name, value in told.items() if value}
        return body

    def run(
        self, command: list[str], printed: IO[bytes] | None = None, *, if_killed: IfKilled
    ) -> int:
        """Note the command, and the annotation while it ran; a code below 0: it was killed."""
        self.ran.append((command, self.annotations.get(RESTORING, "")))
        self.meanwhile()
        if printed is not None:
            printed.write(b"01234567\n")
        code = self.codes.pop(0) if self.codes else 0
        if code < 0:
            raise Problem(if_killed.sentence, if_killed.exit_code)
        return code

    @property
    def begun(self) -> Restoring | None:
        """The annotation, without its random word."""
        told = Restoring.parse(self.annotations.get(RESTORING, ""))
        return told and told._replace(run="")


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


WAYS = [
    ("export", "books"),
    ("export", "books", "there", "--base"),
    ("verify",),
    ("import", "books"),
]


@pytest.mark.parametrize("words", WAYS)
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


def test_the_file_of_a_key_is_named_to_each_process(world: World) -> None:
    option = ("--encryption-key-file", "keys/export key")

    assert invoke("export", "books", "there", *option).exit_code == 0
    assert invoke("import", "there", "books", *option).exit_code == 0
    assert CliRunner().invoke(app, ["verify", "there", *option]).exit_code == 0

    given = [options_of(command).get(option[0]) for command, _ in world.ran]
    assert given == ["keys/export key"] * 4, "an import looks first"


def test_a_zone_that_is_being_restored_is_not_exported(world: World) -> None:
    world.annotations = {RESTORING: "s3://bucket/x#01234567.a"}

    ended = invoke("export", "books", "there")

    assert isinstance(ended.exception, Problem)
    assert ended.exception.exit_code == 2
    assert "an import of s3://bucket/x has begun and is not done" in str(ended.exception)
    assert world.ran == []


@pytest.mark.parametrize("words", [("export", "books", "there"), ("import", "there", "books")])
def test_a_zone_that_cannot_be_read_is_told_as_nothing_written(
    world: World, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def refuse(api: object, kind: object, name: str) -> None:
        raise NotThere(f"zone {name!r} does not exist")

    monkeypatch.setattr(module.resources, "fetch", refuse)

    problem = invoke(*words).exception

    assert isinstance(problem, Problem)
    assert (str(problem), problem.exit_code) == ("zone 'books' does not exist", 2)
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


def test_temporary_files_are_deleted_with_the_cluster(world: World, tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "cluster")
    folder.write(ClusterEntry(FORMAT_VERSION, "main", (), 1, 7000, False))
    assert invoke("export", "books", "there", "--folder", str(folder.path)).exit_code == 0
    (command, _) = world.ran[0]
    work = Path(options_of(command)["--work-dir"])
    work.mkdir()

    folder.delete()

    assert work.parent == folder.path
    assert not folder.path.exists()


def test_a_base_is_named_as_from_any_folder(world: World) -> None:
    assert invoke("export", "books", "there").exit_code == 0
    assert invoke("export", "books", "there", "--base", "monday").exit_code == 0
    assert invoke("export", "books", "there", "--base", "s3://bucket/x").exit_code == 0

    given = [options_of(command).get("--base") for command, _ in world.ran]
    assert given == [None, str(Path("monday").absolute()), "s3://bucket/x"]


def test_an_export_is_verified_without_a_cluster(world: World) -> None:
    ended = CliRunner().invoke(app, ["verify", "s3://bucket/x"])

    assert ended.exit_code == 0
    assert world.ran[0][0][-2:] == ["verify", "s3://bucket/x"]


def test_the_zone_has_an_annotation_until_an_import_is_done(world: World) -> None:
    assert invoke("import", "s3://bucket/x", "books", "--json").exit_code == 0

    (check, before), (run, during) = world.ran
    assert (check[-1], before) == ("--check", "")
    assert during.startswith("s3://bucket/x#01234567.")
    assert "--json" in run
    assert options_of(run)["--export-id"] == "01234567"
    assert options_of(run)["--zone-uid"] == "uid-7"
    assert not {"--continue", "--into-non-empty", "--check"} & set(run)
    assert world.annotations == {"mine": "1"}


@pytest.mark.parametrize("code", [1, 143])
def test_an_import_that_is_not_done_goes_on_when_it_is_run_again(world: World, code: int) -> None:
    world.codes = [0, code]
    assert invoke("import", "s3://bucket/x", "books").exit_code == code
    assert world.begun == Restoring("s3://bucket/x", "01234567")

    refused = invoke("import", "s3://bucket/y", "books")
    assert refused.exit_code != 0
    assert "an import of s3://bucket/x has begun and is not done" in str(refused.exception)
    assert len(world.ran) == 2

    assert invoke("import", "s3://bucket/x", "books").exit_code == 0
    for command, _ in world.ran[2:]:
        assert "--continue" in command
        assert "--into-non-empty" not in command
        assert options_of(command)["--export-id"] == "01234567"
    assert world.annotations == {"mine": "1"}


@pytest.mark.parametrize(
    ("words", "codes", "code", "sentence"),
    [
        (("export", "books", "a b"), [-9], 2, "`quorate verify 'a b'`"),
        (("import", "a b", "books"), [-9], 2, "nothing was written"),
        (("import", "a b", "books"), [0, -9], 1, "zone books may have only a part of the export"),
    ],
)
def test_a_command_whose_process_is_killed_says_what_is_known(
    world: World, words: tuple[str, ...], codes: list[int], code: int, sentence: str
) -> None:
    world.codes = codes
    will_remain = len(codes) == 2

    ended = invoke(*words)

    assert isinstance(ended.exception, Problem)
    assert ended.exception.exit_code == code
    assert sentence in str(ended.exception)
    assert (world.begun is not None) == will_remain, "the same import goes on"


def test_an_import_that_may_not_begin_leaves_the_zone_as_it_is(world: World) -> None:
    world.codes = [2]

    assert invoke("import", "s3://bucket/x", "books", "--into-non-empty").exit_code == 2

    assert len(world.ran) == 1
    assert "--into-non-empty" in world.ran[0][0]
    assert world.annotations == {"mine": "1"}


def test_an_import_that_wrote_nothing_leaves_the_zone_as_it_was(world: World) -> None:
    world.codes = [0, 2]
    assert invoke("import", "s3://bucket/x", "books").exit_code == 2
    assert world.annotations == {"mine": "1"}

    world.codes = [0, 1, 0, 2]
    invoke("import", "s3://bucket/x", "books")
    assert invoke("import", "s3://bucket/x", "books").exit_code == 2
    assert world.begun is not None, "the first one wrote"


def test_that_the_zone_might_have_keys_is_remembered(world: World) -> None:
    world.codes = [0, 1]
    invoke("import", "s3://bucket/x", "books", "--into-non-empty")

    assert invoke("import", "s3://bucket/x", "books").exit_code == 0

    assert all("--into-non-empty" in command for command, _ in world.ran)
    assert len(world.ran) == 4


def test_what_is_declared_during_a_check_stays_declared(world: World) -> None:
    def declare() -> None:
        world.spec = {**world.spec, "replicas": 2}

    world.meanwhile = declare

    assert invoke("import", "s3://bucket/x", "books").exit_code == 0

    assert world.spec["replicas"] == 2  # checked at each change of the annotation


@pytest.mark.parametrize("before", ["", "s3://bucket/x#01234567.a"])
def test_an_import_that_has_begun_during_a_check_is_not_replaced(world: World, before: str) -> None:
    world.annotations = {RESTORING: before} if before else {}

    def begin() -> None:
        world.annotations = {RESTORING: "s3://bucket/y#89abcdef.b"}

    world.meanwhile = begin

    refused = invoke("import", "s3://bucket/x", "books")

    assert "another import has begun meanwhile, of s3://bucket/y" in str(refused.exception)
    assert isinstance(refused.exception, Problem)
    assert refused.exception.exit_code == 2
    assert len(world.ran) == 1
    assert world.annotations == {RESTORING: "s3://bucket/y#89abcdef.b"}


def test_of_two_imports_that_look_at_once_one_begins(world: World) -> None:
    """The other one would not see its note, and would remove its own: the zone has keys."""
    first = {RESTORING: "s3://bucket/x#01234567.first"}

    def begin() -> None:
        world.annotations = first

    world.before_put = [begin]

    refused = invoke("import", "s3://bucket/x", "books")

    assert "another import has begun meanwhile" in str(refused.exception)
    assert len(world.ran) == 1
    assert world.annotations == first


def test_what_is_declared_while_an_import_is_noted_stays_declared(world: World) -> None:
    def declare() -> None:
        world.spec, world.generation = {**world.spec, "replicas": 2}, world.generation + 1

    world.before_put = [declare, declare]

    assert invoke("import", "s3://bucket/x", "books").exit_code == 0

    assert (world.spec["replicas"], world.annotations) == (2, {"mine": "1"})


def test_an_import_that_another_one_has_ended_does_not_begin_again(world: World) -> None:
    world.annotations = {RESTORING: "s3://bucket/x#01234567.a"}
    world.meanwhile = world.annotations.clear

    refused = invoke("import", "s3://bucket/x", "books")

    assert "has ended meanwhile: the zone is whole" in str(refused.exception)
    assert len(world.ran) == 1
    assert world.annotations == {}


@pytest.mark.parametrize(("during", "code"), [("the check", 2), ("the import", 1)])
def test_a_zone_that_was_replaced_meanwhile_is_not_touched(
    world: World, during: str, code: int
) -> None:
    """The import may have written all rows into the earlier one."""
    another = {RESTORING: "s3://bucket/x#01234567.of-another"}

    def replace() -> None:
        if during == "the check" or len(world.ran) == 2:
            world.uid, world.annotations = "uid-8", another

    world.meanwhile = replace

    ended = invoke("import", "s3://bucket/x", "books")

    if isinstance(ended.exception, Problem):
        assert ended.exception.exit_code == code
    else:
        assert ended.exit_code == code
    said = f"{ended.exception}{ended.stderr}"
    assert "zone books was deleted and created again meanwhile" in said
    assert world.annotations == another


def test_of_two_imports_at_once_the_one_that_began_last_ends_both(world: World) -> None:
    later = ["s3://bucket/x#01234567.later"]

    def go_on() -> None:
        if RESTORING in world.annotations:
            world.annotations = {RESTORING: later[0]}

    world.meanwhile = go_on

    ended = invoke("import", "s3://bucket/x", "books")

    assert ended.exit_code == 1
    assert "another import of s3://bucket/x has begun meanwhile" in ended.stderr
    assert world.annotations == {RESTORING: later[0]}


@pytest.mark.parametrize(
    "told",
    [
        Restoring("s3://b/x?scheme=http", "01234567", "89abcdef", into_non_empty=True),
        Restoring("/a folder#1/.x", "01234567", "89abcdef"),
    ],
)
def test_the_annotation_is_read_as_it_was_written(told: Restoring) -> None:
    assert Restoring.parse(told.text) == told
    assert Restoring.parse("") is None
    assert Restoring.parse("/by-hand") == Restoring("/by-hand")
