"""`kubectl quorate backup` and `restore` on canned objects: what they create, print and refuse."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate_cli.kubectl.app import app
from quorate_cli.kubectl.runs import follow
from quorate_cli.terminal.problem import Problem
from quorate_kubectl.canned import OURS, CannedApi, Kubectl

NAME = "library-x7k2m"
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "library/monday"}}
BUCKET = {"url": "s3://b/c", "endpoint": "http://minio:9000", "region": "eu-1"}
COMPLETE = {
    "phase": "Finished",
    "outcome": "Complete",
    "message": "50000 rows are exported to backups:library/monday and were read back",
    "job": f"{NAME}-backup",
    "rows": 50_000,
}
RUNS = {"phase": "Running", "message": "its pod exports the zone", "percent": 40}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canned operator answers at once."""
    monkeypatch.setattr(follow, "POLL_S", 0.0)


def run(kubectl: Kubectl, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, f"--kubeconfig={kubectl.kubeconfig}"])


def becomes(
    api: CannedApi, monkeypatch: pytest.MonkeyPatch, plural: str, *statuses: dict[str, Any]
) -> None:
    """The object has the first status when it was created, and the next one at each look."""
    left = list(statuses)

    def later(seconds: float) -> None:
        api.objects[f"{OURS}/{plural}/{NAME}"]["status"] = left.pop(0)

    def created(made: Any) -> None:
        made["status"] = left.pop(0)

    api.on_create = created
    monkeypatch.setattr("quorate_cli.kubectl.runs.follow.time.sleep", later)


def made(api: CannedApi, plural: str) -> Any:
    """The spec of the one object that was created, which the operator understands."""
    collection = f"{OURS}/{plural}"
    [body] = [body for method, path, body in api.asked if (method, path) == ("POST", collection)]
    kind = {each.plural: each for each in (ZoneBackup, ZoneRestore)}[plural]
    kind.parse({**body, "metadata": {"name": "x"}})
    return body["spec"]


def test_a_backup_is_created_and_followed(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, "zonebackups", {}, RUNS, RUNS, COMPLETE)

    done = run(kubectl, "backup", "library", "--destination", "backups:library/monday")

    assert made(api, "zonebackups") == {"zoneRef": {"name": "library"}, "destination": CLAIM}
    assert done.exit_code == 0
    options = f" --kubeconfig {kubectl.kubeconfig}"
    assert done.stdout == (
        "zone library: Complete\n"
        "50000 rows are exported to backups:library/monday and were read back\n"
        f"zonebackup {NAME}; the whole result: kubectl logs job/{NAME}-backup{options}\n"
    )
    assert done.stderr == (
        f"zonebackup {NAME}: the operator has not looked at it\n"
        f"zonebackup {NAME}: its pod exports the zone\n"
    )


LIMIT = ("--max-mib-per-second-per-agent", "8")


@pytest.mark.parametrize(
    ("command", "plural", "words", "field"),
    [
        ("backup", "zonebackups", LIMIT, {"maxMiBPerSecondPerAgent": 8}),
        ("restore", "zonerestores", LIMIT, {"maxMiBPerSecondPerAgent": 8}),
        ("backup", "zonebackups", ("--executors", "3"), {"executors": 3}),
    ],
)
def test_how_copies_are_read_is_a_field_of_the_object(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    plural: str,
    words: tuple[str, str],
    field: dict[str, int],
) -> None:
    becomes(api, monkeypatch, plural, COMPLETE)

    place = "--destination" if command == "backup" else "--source"
    run(kubectl, command, "library", place, "backups:library/monday", *words)

    assert field.items() <= made(api, plural).items()


@pytest.mark.parametrize(
    ("words", "more"), [((), {}), (("--into-non-empty",), {"intoNonEmpty": True})]
)
def test_a_restore_names_its_bucket_and_secret(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    more: dict[str, bool],
) -> None:
    becomes(api, monkeypatch, "zonerestores", COMPLETE)
    at = ("--source", "s3://b/c", "--endpoint", "http://minio:9000", "--region", "eu-1")

    done = run(kubectl, "restore", "library", *at, "--credentials-secret", "keys", *words)

    assert done.exit_code == 0
    secret = {"credentialsSecretRef": {"name": "keys"}}
    source = {"s3": {**BUCKET, **secret}}
    assert made(api, "zonerestores") == {"zoneRef": {"name": "library"}, "source": source, **more}


@pytest.mark.parametrize(
    ("word", "ref"),
    [("keys", {"name": "keys"}), ("keys:of-june", {"name": "keys", "key": "of-june"})],
)
def test_the_secret_of_a_key_is_named(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    ref: dict[str, str],
) -> None:
    for words, plural in (
        (("backup", "library", "--destination"), "zonebackups"),
        (("restore", "library", "--source"), "zonerestores"),
    ):
        becomes(api, monkeypatch, plural, {**COMPLETE, "encryptionKeyId": "0011223344556677"})

        done = run(kubectl, *words, "backups:one", "--encryption-key-secret", word)

        assert done.exit_code == 0
        assert made(api, plural)["encryptionKeySecretRef"] == ref
        assert f"{OURS}/{plural}" in api.strict, "an older CRD would leave the field out"


@pytest.mark.parametrize(
    ("outcome", "code", "is_told"), [("Complete", 1, True), ("Failed", 1, False)]
)
def test_an_export_that_was_to_be_encrypted_and_names_no_key_is_an_error(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    code: int,
    is_told: bool,
) -> None:
    """An operator that knows no encryption makes one in the clear."""
    becomes(api, monkeypatch, "zonebackups", {**COMPLETE, "outcome": outcome})
    at = ("backup", "library", "--destination", "backups:one")

    done = run(kubectl, *at, "--encryption-key-secret", "keys")

    assert f"zone library: {outcome}" in done.stdout
    problem = done.exception
    assert isinstance(problem, Problem) is is_told
    assert (problem.exit_code if isinstance(problem, Problem) else done.exit_code) == code
    if is_told:
        assert f"zonebackup {NAME} names no key with which the export is" in str(problem)


@pytest.mark.parametrize("word", [":key", "keys:"])
def test_a_half_named_secret_is_refused(kubectl: Kubectl, api: CannedApi, word: str) -> None:
    at = ("backup", "library", "--destination", "backups:one")

    done = run(kubectl, *at, "--encryption-key-secret", word)

    assert isinstance(done.exception, Problem)
    assert "write SECRET, or SECRET:KEY" in str(done.exception)


@pytest.mark.parametrize(("outcome", "code"), [("Complete", 0), ("Failed", 1), ("Unknown", 2)])
def test_the_exit_code_is_the_outcome(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    code: int,
) -> None:
    becomes(api, monkeypatch, "zonebackups", {**COMPLETE, "outcome": outcome})

    done = run(kubectl, "backup", "library", "--destination", "backups:one", "--json")

    assert done.exit_code == code
    assert json.loads(done.stdout)["outcome"] == outcome


def test_a_run_that_is_refused_has_the_exit_code_2(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, "zonebackups", {"phase": "Refused", "message": "no such zone"})

    problem = run(kubectl, "backup", "library", "--destination", "backups:one").exception

    assert isinstance(problem, Problem)
    assert (problem.exit_code, str(problem)) == (2, f"zonebackup {NAME}: no such zone")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("backup", "--destination", "backups"), "--destination: write CLAIM:FOLDER, or s3://"),
        (("backup", "--destination", ""), "--destination: write CLAIM:FOLDER, or s3://"),
        (("restore", "--source", "a:b", "--region", "eu-1"), "write --source s3://BUCKET/FOLDER"),
    ],
)
def test_a_place_that_is_none_is_refused_and_nothing_is_created(
    kubectl: Kubectl, api: CannedApi, words: tuple[str, ...], said: str
) -> None:
    command, *options = words
    problem = run(kubectl, command, "library", *options).exception

    assert isinstance(problem, Problem)
    assert said in str(problem)
    assert problem.exit_code == 2
    assert not [method for method, _, _ in api.asked if method == "POST"]
