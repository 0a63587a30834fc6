"""Commands that read copies hand their options to the programs that they run."""

from typing import IO, Any

import pytest
from typer.testing import CliRunner

from quorate.wire.jobs.zone_history import ZoneHistory
from quorate_cli.commands import export, objects, repair
from quorate_cli.commands.every import app

OPTION = "--max-mib-per-second-per-agent"
KIND = {"apiVersion": "quorate.io/v1alpha1"}
ZONE = {
    **KIND,
    "kind": "Zone",
    "metadata": {"name": "books", "uid": "uid-7"},
    "spec": {"clusterRef": {"name": "main"}, "partitions": 4, "replicas": 3},
}
CLUSTER = {
    **KIND,
    "kind": "StorageCluster",
    "metadata": {"name": "main"},
    "spec": {"external": {"addresses": ["127.0.0.1:7101"]}},
}
of_each = pytest.mark.parametrize(
    "words",
    [
        ("validate", "books", "--level", "digest"),
        ("export", "books", "there"),
        ("repair", "books", "--strategy", "LWW"),
        ("repair", "books", "--execute", "plan.parquet"),
    ],
    ids=" ".join,
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that were run; each ended well."""
    commands: list[list[str]] = []

    def fetch(api: object, kind: Any, name: str) -> Any:
        return ZONE if name == "books" else CLUSTER

    def run(command: list[str], history: ZoneHistory | None = None, **more: object) -> int:
        commands.append(command)
        return 0

    for module in (export, objects, repair):
        monkeypatch.setattr(module.resources, "fetch", fetch)
        monkeypatch.setattr(module, "run_validation", run)
    return commands


@of_each
def test_the_program_gets_the_limit(ran: list[list[str]], words: tuple[str, ...]) -> None:
    for more in ((), (OPTION, "8")):
        ended = CliRunner().invoke(app, [*words, *more, "--server", "127.0.0.1:1"])
        assert ended.exit_code == 0, ended.output

    free, limited = ran
    assert not any(word.startswith(OPTION) for word in free)
    assert f"{OPTION}=8" in limited


def test_an_import_and_the_look_before_it_get_the_limit(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], printed: IO[bytes] | None = None, **more: object) -> int:
        ran.append(command)
        return 0

    monkeypatch.setattr(export, "run_validation", run)
    monkeypatch.setattr(export, "_take_over", lambda *of: None)
    monkeypatch.setattr(export, "_end", lambda *of: 0)

    words = ["import", "there", "books", OPTION, "8", "--server", "127.0.0.1:1"]
    ended = CliRunner().invoke(app, words)

    assert ended.exit_code == 0, ended.output
    assert len(ran) == 2
    assert all(f"{OPTION}=8" in command for command in ran)


def test_the_program_gets_the_mode(ran: list[list[str]]) -> None:
    for more in ((), ("--mode", "idle")):
        words = ["validate", "books", "--level", "digest", *more, "--server", "127.0.0.1:1"]
        ended = CliRunner().invoke(app, words)
        assert ended.exit_code == 0, ended.output

    found = [command[command.index("--mode") + 1] for command in ran]
    assert found == ["live", "idle"]


@of_each
@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ("0", "greater than or equal to 1"),
        ("10001", "less than or equal to 10000"),
        ("1.5", "valid integer"),
        ("fast", "valid integer"),
    ],
)
def test_a_limit_that_is_none_is_refused(
    ran: list[list[str]], words: tuple[str, ...], limit: str, wanted: str
) -> None:
    ended = CliRunner().invoke(app, [*words, OPTION, limit, "--server", "127.0.0.1:1"])

    assert ended.exit_code == 2
    said = " ".join(ended.output.replace("│", " ").split())
    assert f"Invalid value for '{OPTION}'" in said
    assert wanted in said
    assert not ran
