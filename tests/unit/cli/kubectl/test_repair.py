"""`kubectl quorate repair` on canned objects: what it creates, follows, prints and refuses."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate_cli.kubectl.app import app
from quorate_kubectl.canned import OURS, CannedApi, Kubectl

NAME = "library-x7k2m"
COLLECTION = f"{OURS}/zonerepairs"
DIGEST = "0a" * 32
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "one"}}
PLANNED = {
    "phase": "Finished",
    "outcome": "Planned",
    "message": "2 keys differ (write 2), and nothing is changed",
    "job": f"{NAME}-repair",
    "place": "backups:one",
    "planDigest": DIGEST,
}
RUNS = {"phase": "Running", "message": "its pod compares the copies for a plan", "percent": 40}


def run(kubectl: Kubectl, *words: str) -> Result:
    command = ["repair", "library", *words, f"--kubeconfig={kubectl.kubeconfig}"]
    return CliRunner().invoke(app, command)


def becomes(api: CannedApi, monkeypatch: pytest.MonkeyPatch, *statuses: Any) -> None:
    """The object has the first status when it was created, and the next one at each look."""
    left = list(statuses)

    def later(seconds: float) -> None:
        api.objects[f"{COLLECTION}/{NAME}"]["status"] = left.pop(0)

    def created(made: Any) -> None:
        made["status"] = left.pop(0)

    api.on_create = created
    monkeypatch.setattr("quorate_cli.kubectl.runs.follow.time.sleep", later)


def made(api: CannedApi) -> Any:
    [body] = [body for method, path, body in api.asked if (method, path) == ("POST", COLLECTION)]
    ZoneRepair.parse({**body, "metadata": {"name": "x"}})
    return body["spec"]


def dry_run(api: CannedApi, **status: Any) -> None:
    spec = {"zoneRef": {"name": "library"}, "strategy": "LWW", "destination": CLAIM}
    whole = {"apiVersion": "quorate.io/v1alpha1", "kind": "ZoneRepair", "spec": spec}
    api.put(f"{COLLECTION}/plan-1", {**whole, "status": {**PLANNED, **status}})


def test_the_limit_is_a_field_of_a_plan_and_of_its_execution(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = ("--max-mib-per-second-per-agent", "8")
    for words in (("--strategy=LWW", "--destination=backups:one"), ("--execute", "plan-1")):
        api.asked.clear()
        dry_run(api)
        becomes(api, monkeypatch, PLANNED)
        run(kubectl, *words, *limit)

        assert made(api)["maxMiBPerSecondPerAgent"] == 8


def test_a_dry_run_is_created_and_followed(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, {}, RUNS, RUNS, PLANNED)

    done = run(kubectl, "--strategy", "LWW", "--destination", "backups:one", "--level", "digest")

    assert made(api) == {
        "zoneRef": {"name": "library"},
        "strategy": "LWW",
        "level": "Digest",
        "destination": CLAIM,
    }
    assert done.exit_code == 0
    options = f" --kubeconfig {kubectl.kubeconfig}"
    assert done.stdout == (
        "zone library: Planned\n"
        "2 keys differ (write 2), and nothing is changed\n"
        f"zonerepair {NAME}; the whole result: kubectl logs job/{NAME}-repair{options}\n"
    )
    assert done.stderr == (
        f"zonerepair {NAME}: the operator has not looked at it\n"
        f"zonerepair {NAME}: its pod compares the copies for a plan\n"
    )


def test_the_plan_of_a_dry_run_is_quoted(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry_run(api)
    becomes(api, monkeypatch, {**PLANNED, "outcome": "Repaired"})

    assert run(kubectl, "--execute", "plan-1").exit_code == 0
    assert made(api) == {
        "zoneRef": {"name": "library"},
        "dryRun": False,
        "plan": {"source": CLAIM, "digest": DIGEST},
    }


def test_a_new_plan_is_executed_only_if_that_is_said(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, {**PLANNED, "outcome": "Repaired"})
    words = ("--strategy", "REMOVE", "--destination", "s3://b/c", "--region", "eu-1")

    run(kubectl, *words, "--credentials-secret", "keys", "--without-review")

    spec = made(api)
    assert (spec["dryRun"], spec["withoutReview"]) == (False, True)
    secret = {"credentialsSecretRef": {"name": "keys"}}
    assert spec["destination"] == {"s3": {"url": "s3://b/c", "region": "eu-1", **secret}}


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("NothingToRepair", 0),
        ("Repaired", 0),
        ("Incomplete", 1),
        ("Failed", 2),
        ("Unknown", 2),
    ],
)
def test_the_exit_code_is_the_outcome(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch, outcome: str, code: int
) -> None:
    becomes(api, monkeypatch, {**PLANNED, "outcome": outcome})

    done = run(kubectl, "--strategy", "LWW", "--destination", "backups:one", "--json")

    assert done.exit_code == code
    assert json.loads(done.stdout)["outcome"] == outcome


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "write --strategy and one of LWW, PRIMARY"),
        (("--strategy", "LWW"), "and --destination"),
        (("--strategy", "LWW", "--destination", "backups"), "write CLAIM:FOLDER"),
        (("--strategy", "LWW", "--destination", "b:c", "--region", "x"), "are of a bucket"),
        (("--execute", "plan-1", "--strategy", "LWW"), "leave out --strategy"),
        (("--execute", "plan-1", "--level", "rows"), "leave out --strategy, --level"),
        (("--execute", "plan-2"), "plan-2"),
        (("--execute", "plan-1"), "zonerepair plan-1 has no plan: no key differs"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    kubectl: Kubectl, api: CannedApi, words: tuple[str, ...], said: str
) -> None:
    dry_run(api, outcome="NothingToRepair", message="no key differs")

    done = run(kubectl, *words)

    assert done.exit_code != 0
    assert said in str(done.exception) + done.output
    assert not [path for method, path, _ in api.asked if method == "POST"]
