"""`kubectl quorate validate` on canned objects: what it creates, follows, prints and leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from quorate_cli.kubectl import kube_api
from quorate_cli.kubectl.app import app
from quorate_cli.kubectl.runs import follow
from quorate_cli.terminal.problem import Problem
from quorate_kubectl.canned import CORE, OURS, Answer, CannedApi, Kubectl, renewed
from quorate_spark.report import report_json
from quorate_spark.verdict import Level, Outcome, Verdict

NAME = "library-x7k2m"
COLLECTION = f"{OURS}/datavalidations"
AGREE = {
    "phase": "Finished",
    "verdict": "Agree",
    "message": "all 12 copies of 4 partitions agree; 7 keys were compared",
    "job": f"{NAME}-validation",
}
DIFFER = {
    "phase": "Finished",
    "verdict": "Differ",
    "message": "copies differ (value 2)",
    "job": f"{NAME}-validation",
    "classes": {"value": 2, "skipped": 1},
    "reasons": ["partition 3: agent-2 is silent"],
    "outvoted": [{"partition": 1, "node": "agent-3"}],
}
UNPROVEN = {"phase": "Finished", "verdict": "CouldNotTell", "message": "could not tell …"}
WAITING = {"phase": "Waiting", "message": "Zone library is paused"}
READS = {"phase": "Running", "message": "its pod reads the copies", "percent": 40}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canned operator answers at once."""
    monkeypatch.setattr(follow, "POLL_S", 0.0)


def becomes(api: CannedApi, monkeypatch: pytest.MonkeyPatch, *statuses: Any) -> None:
    """The object has the first status when it was created, and the next one at each look.

    In place of a status there may be something to do.
    """
    left = list(statuses)

    def on(made: Any) -> None:
        status = left.pop(0)
        if isinstance(status, dict):
            made["status"] = status
        else:
            status()

    def later(seconds: float) -> None:
        on(api.objects.get(f"{COLLECTION}/{NAME}"))

    api.on_create = on
    monkeypatch.setattr("quorate_cli.kubectl.runs.follow.time.sleep", later)


def run(kubectl: Kubectl, *words: str) -> Result:
    command = ["validate", *words, f"--kubeconfig={kubectl.kubeconfig}"]
    return CliRunner().invoke(app, command)


def created(api: CannedApi) -> list[Any]:
    return [body for method, path, body in api.asked if (method, path) == ("POST", COLLECTION)]


@pytest.mark.parametrize(
    ("option", "field", "refused"),
    [
        ("--max-mib-per-second-per-agent", "maxMiBPerSecondPerAgent", "0"),
        ("--executors", "executors", "101"),
    ],
)
def test_how_copies_are_read_is_a_field_of_the_object(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    field: str,
    refused: str,
) -> None:
    becomes(api, monkeypatch, AGREE)

    run(kubectl, "library", option, "8")
    ended = run(kubectl, "library", option, refused)

    [made] = created(api)
    assert made["spec"][field] == 8
    assert ended.exit_code == 2


def test_it_creates_one_object_and_prints_its_verdict(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, {}, WAITING, WAITING, READS, {**READS, "percent": 80}, AGREE)

    done = run(kubectl, "library", "--level", "digest", "--keys=hashed", "-n", "shop")

    [made] = created(api)
    assert made["kind"] == "DataValidation"
    assert made["spec"] == {"zoneRef": {"name": "library"}, "level": "Digest", "keys": "Hashed"}
    assert done.exit_code == 0
    options = f" --kubeconfig {kubectl.kubeconfig} --namespace shop"
    assert done.stdout == (
        "zone library, level digest: Agree\n"
        "all 12 copies of 4 partitions agree; 7 keys were compared\n"
        f"datavalidation {NAME}; the whole report: kubectl logs job/{NAME}-validation{options}\n"
    )
    assert done.stderr == (
        f"datavalidation {NAME}: the operator has not looked at it\n"
        f"datavalidation {NAME}: it waits: Zone library is paused\n"
        f"datavalidation {NAME}: its pod reads the copies\n"
    )


def test_the_mode_is_a_field_of_the_object(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, {**AGREE, "mode": "Idle"})

    done = run(kubectl, "library", "--mode", "idle")

    [made] = created(api)
    assert made["spec"]["mode"] == "Idle"
    assert done.exit_code == 0
    assert done.stdout.startswith("zone library, level rows, idle: Agree\n")


def test_a_mode_that_the_crds_do_not_know_is_no_verdict(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, AGREE)
    usual = api.on_create

    def without_mode(made: Any) -> None:
        usual(made)
        del made["spec"]["mode"]

    api.on_create = without_mode

    refuses(run(kubectl, "library", "--mode", "idle"))


def test_copies_that_differ_in_mode_live_differ_in_mode_idle(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, DIFFER)

    done = run(kubectl, "library", "--mode", "idle")

    assert done.exit_code == 1
    assert done.stdout.startswith("zone library, level rows, idle: Differ\n")
    assert "its result is not of mode idle" in done.stderr


@pytest.mark.parametrize("status", [AGREE, {**AGREE, "mode": "Live"}])
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_result_of_mode_live_is_no_verdict_of_mode_idle(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    status: Any,
    words: tuple[str, ...],
) -> None:
    """An operator of an earlier version ran it so, under the CRDs of this one."""
    becomes(api, monkeypatch, status)

    refuses(run(kubectl, "library", "--mode", "idle", *words))


def refuses(done: Result) -> None:
    assert isinstance(done.exception, Problem)
    assert done.exception.exit_code == 2
    assert "its result is not of mode idle" in str(done.exception)
    assert "upgrade the operator, then validate again" in str(done.exception)
    assert "Agree" not in done.stdout


def test_a_run_of_mode_idle_without_a_result_says_why(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, UNPROVEN)

    done = run(kubectl, "library", "--mode", "idle")

    assert done.exit_code == 2
    assert done.stdout.startswith("zone library, level rows, idle: CouldNotTell\ncould not tell")


@pytest.mark.parametrize(("status", "code"), [(AGREE, 0), (DIFFER, 1), (UNPROVEN, 2)])
def test_the_exit_code_is_the_verdict(
    kubectl: Kubectl,
    api: CannedApi,
    monkeypatch: pytest.MonkeyPatch,
    status: Any,
    code: int,
) -> None:
    becomes(api, monkeypatch, status)

    done = run(kubectl, "library", "--json")

    assert done.exit_code == code
    told = json.loads(done.stdout)
    assert (told["verdict"], told["message"]) == (status["verdict"], status["message"])


def test_a_difference_is_told_by_class_and_with_what_to_do(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(api, monkeypatch, DIFFER)

    lines = run(kubectl, "library").stdout.splitlines()

    assert {"skipped: 1 partitions", "value: 2 keys"} <= {*lines}
    assert "could not tell: partition 3: agent-2 is silent" in lines
    restart = "kubectl quorate recover restart library --partitions 1 --node agent-3 --erase"
    assert f"{restart} --kubeconfig {kubectl.kubeconfig}" in lines


def ended(api: CannedApi, index: int, log: bytes) -> None:
    """A pod of the Job has ended, with this log."""
    name = f"{NAME}-validation-{index}"
    at = f"2026-01-01T00:00:0{index}Z"
    labels = {"quorate.io/validation": NAME}
    api.put(f"{CORE}/pods/{name}", {"metadata": {"labels": labels, "creationTimestamp": at}})
    api.texts[f"{CORE}/pods/{name}/log"] = log


def test_the_report_of_the_last_pod_is_kept(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    becomes(api, monkeypatch, DIFFER)
    ended(api, 2, report_json(Verdict("library", Level.ROWS, Outcome.DIFFER, ("so",))))
    ended(api, 1, b"tea")

    done = run(kubectl, "library", "--report", str(tmp_path / "reports"))

    [page, report] = sorted((tmp_path / "reports").iterdir())
    assert (done.exit_code, done.stderr) == (1, f"report: {page}\n")
    assert json.loads(report.read_bytes())["reasons"] == ["so"]
    assert b"<h2>Not proven</h2>" in page.read_bytes()


def test_a_report_that_cannot_be_kept_has_the_exit_code_2(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for log, said in ((None, "its pod is gone"), (b"tea", "is no report of a validation")):
        becomes(api, monkeypatch, DIFFER)
        if log is not None:
            ended(api, 1, log)

        done = run(kubectl, "library", "--report", str(tmp_path / "reports"))

        assert "zone library, level rows: Differ" in done.stdout
        assert isinstance(done.exception, Problem)
        assert done.exception.exit_code == 2
        assert said in str(done.exception)


def test_ctrl_c_leaves_the_run_going_and_says_how_to_look_at_it(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    becomes(api, monkeypatch, READS, interrupt)

    done = run(kubectl, "library")

    assert done.exit_code == 130
    assert f"{NAME} goes on: kubectl get datavalidation {NAME} --kubeconfig" in done.stderr
    assert [method for method, _, _ in api.asked if method not in ("GET", "POST")] == []


def no_operator(api: CannedApi) -> None:
    renewed(api, 60)


def no_right(api: CannedApi) -> None:
    api.refused["POST", COLLECTION] = Answer(403, {"message": "you may not"})


@pytest.mark.parametrize(
    ("so", "words", "said", "creations"),
    [
        (no_operator, ["library"], "no operator leads", 0),
        (no_right, ["library"], "you may not", 1),
        (lambda api: None, ["tea"], "tea", 0),
        (lambda api: None, ["library", "--context=none"], "no such context", 0),
    ],
)
def test_what_prevents_a_run_has_the_exit_code_2(
    kubectl: Kubectl,
    api: CannedApi,
    so: Callable[[CannedApi], None],
    words: list[str],
    said: str,
    creations: int,
) -> None:
    so(api)

    problem = run(kubectl, *words).exception

    assert isinstance(problem, Problem)
    assert problem.exit_code == 2
    assert said in str(problem)
    assert len(created(api)) == creations


def test_a_run_that_is_refused_or_deleted_has_the_exit_code_2(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"phase": "Refused", "message": "its Job is refused: tea"}
    for end, said in (
        (refused, f"datavalidation {NAME}: its Job is refused: tea"),
        (api.objects.clear, f"datavalidation {NAME} was deleted before its end"),
    ):
        becomes(api, monkeypatch, READS, end)

        problem = run(kubectl, "library").exception

        assert isinstance(problem, Problem)
        assert (problem.exit_code, str(problem)) == (2, said)


def test_an_api_server_that_is_away_is_asked_again(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = kube_api.KubeApi.get

    def get(self: kube_api.KubeApi, path: str, **query: str | int | bool) -> Any:
        if path.endswith(NAME) and away:
            away.pop()
            raise kube_api.Unreached("no route")
        return ask(self, path, **query)

    monkeypatch.setattr(kube_api.KubeApi, "get", get)
    away = [1, 2]
    becomes(api, monkeypatch, READS, READS, AGREE)
    assert run(kubectl, "library").exit_code == 0

    away = [1, 2]
    monkeypatch.setattr(follow, "UNREACHED_S", -1)
    becomes(api, monkeypatch, READS)
    problem = run(kubectl, "library").exception
    assert isinstance(problem, Problem)
    assert problem.exit_code == 2
    assert f"no route; datavalidation {NAME} goes on: kubectl get" in str(problem)
