"""`kubectl quorate recover` on canned objects: the ZoneRecovery it creates, and what it prints."""

from typing import Any

import pytest
from typer.testing import CliRunner

from quorate_cli.kubectl import kube_api, recover
from quorate_cli.kubectl.app import app
from quorate_kubectl.canned import OURS, CannedApi, Kubectl, renewed

NAME = "library-x7k2m"
COLLECTION = f"{OURS}/zonerecoveries"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canned operator answers at once."""
    monkeypatch.setattr(recover, "POLL_S", 0.01)


def decides(api: CannedApi, phase: str, message: str, *refusals: str) -> None:
    """The operator runs each new object at once: row 17 of each partition is concerned."""

    def run(made: Any) -> None:
        effects = [
            {"partition": each, "rowVersion": 17, "message": "so it is"}
            for each in made["spec"]["partitions"]
        ]
        made["status"] = {
            "phase": phase,
            "message": message,
            "partitions": [] if refusals else effects,
            "refusals": [*refusals],
        }

    api.on_create = run


def created(api: CannedApi) -> list[Any]:
    return [body for method, path, body in api.asked if (method, path) == ("POST", COLLECTION)]


def spec(action: str, partitions: list[int], versions: list[int], **more: object) -> object:
    asked = {"zoneRef": {"name": "library"}, "action": action, "partitions": partitions}
    defaults = {"node": "", "erase": False, "dryRun": True}
    return asked | {"rowVersions": versions} | defaults | more


def test_without_yes_it_says_what_it_would_do_and_how_to_do_it(
    kubectl: Kubectl, api: CannedApi
) -> None:
    decides(api, "Shown", "nothing was changed: …")

    text = kubectl("recover reset library", "--partitions=0-1", "--to=agent-1", "-n", "shop")

    [made] = created(api)
    assert made["spec"] == spec("Reset", [0, 1], [], node="agent-1")
    assert made["kind"] == "ZoneRecovery"
    assert text == (
        "zone library, partition 0 (row 17): so it is\n"
        "zone library, partition 1 (row 17): so it is\n"
        "nothing was changed; this does it:\n"
        "  kubectl quorate recover reset library --partitions 0,1 --versions 17,17 --to agent-1"
        f" --kubeconfig {kubectl.kubeconfig} --namespace shop --yes\n"
    )


def test_with_yes_it_is_done_and_the_object_is_named(kubectl: Kubectl, api: CannedApi) -> None:
    decides(api, "Done", "it is done")

    text = kubectl("recover restart library --partitions 3 --versions 17 --node agent-2 --erase -y")

    [made] = created(api)
    assert made["spec"] == spec("Restart", [3], [17], node="agent-2", erase=True, dryRun=False)
    assert text == (
        "zone library, partition 3 (row 17): so it is\nzonerecovery library-x7k2m: it is done\n"
    )


@pytest.mark.parametrize("action", ["Cancel", "Reopen", "Rebuild"])
def test_each_decision_is_an_action(kubectl: Kubectl, api: CannedApi, action: str) -> None:
    decides(api, "Done", "it is done")

    kubectl(f"recover {action.lower()} library --partitions 2,3 --versions 4,5 --yes")

    assert [made["spec"] for made in created(api)] == [spec(action, [2, 3], [4, 5], dryRun=False)]


@pytest.mark.parametrize("phase", ["Refused", "Unknown"])
def test_what_is_not_done_ends_with_the_reasons(
    kubectl: Kubectl, api: CannedApi, phase: str
) -> None:
    decides(api, phase, "nothing was done", "partition 0: its row has changed", "partition 1: so")

    said = kubectl.problem("recover cancel library --partitions 0-1 --versions 1,2 --yes")

    assert said == (
        f"zonerecovery {NAME}: nothing was done; partition 0: its row has changed; partition 1: so"
    )


def test_it_waits_for_the_result(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    api.on_create = made.append

    def later(seconds: float) -> None:
        decides(api, "Done", "it is done")
        api.on_create(made[0])

    monkeypatch.setattr("quorate_cli.kubectl.recover.time.sleep", later)

    assert "it is done" in kubectl("recover cancel library --partitions 0 --versions 1 --yes")


def test_a_result_that_does_not_come(kubectl: Kubectl, api: CannedApi) -> None:
    decides(api, "Waiting", "Zone library is paused")

    said = kubectl.problem("recover cancel library --partitions 0 --wait 0.1")

    assert said.startswith(
        f"zonerecovery {NAME}: not answered within 0.1 s: Zone library is paused;"
    )
    assert f"kubectl delete zonerecovery {NAME}" in said


def silent(monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> None:
    """The API server does not answer the first `times` requests about a ZoneRecovery."""
    ask, left = getattr(kube_api.KubeApi, method), [None] * times

    def asked(self: kube_api.KubeApi, path: str, *body: Any) -> Any:
        if "zonerecoveries" in path and left:
            left.pop()
            raise kube_api.Unreached("no route")
        return ask(self, path, *body)

    monkeypatch.setattr(kube_api.KubeApi, method, asked)


def test_an_api_server_that_is_away_is_asked_again(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    decides(api, "Done", "it is done")
    command = "recover cancel library --partitions 0 --versions 1 --yes"
    silent(monkeypatch, "get", 2)
    assert f"zonerecovery {NAME}: it is done" in kubectl(command)

    silent(monkeypatch, "get", 1)
    said = kubectl.problem(command, "--wait=0")
    assert f"no route; zonerecovery {NAME} goes on: kubectl get zonerecovery {NAME}" in said


def test_an_interrupted_command_names_the_object(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    decides(api, "Waiting", "Zone library is paused")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    words = ["recover", "cancel", "library", "--partitions=0", f"--kubeconfig={kubectl.kubeconfig}"]
    done = CliRunner().invoke(app, words)

    assert done.exit_code == 130
    assert f"zonerecovery {NAME} goes on: kubectl get zonerecovery {NAME}" in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("recover cancel library --partitions 0", "whether a zonerecovery was created"),
        (
            "repair library --strategy=LWW --destination=backups:one --without-review",
            "whether a zonerepair was created",
        ),
    ],
)
def test_a_creation_without_an_answer_is_unknown(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    def create(*_arguments: object) -> None:
        raise kube_api.Unreached("no answer")

    monkeypatch.setattr(kube_api.KubeApi, "create", create)

    told = kubectl.problem(command)
    assert f"no answer; {said}, and runs, is unknown: look before you try again: kubectl" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("library --partitions 0 --yes", "--versions"),
        ("library --partitions 0,0", "name each partition once"),
        ("library --partitions 20000", "16383"),
        ("library --partitions 0-1024", "1024"),
        ("books --partitions 0", "there are library"),
    ],
)
def test_what_cannot_be_asked_creates_nothing(
    kubectl: Kubectl, api: CannedApi, arguments: str, said: str
) -> None:
    assert said in kubectl.problem(f"recover cancel {arguments}")
    assert created(api) == []


def test_without_an_operator_nothing_is_created(kubectl: Kubectl, api: CannedApi) -> None:
    renewed(api, 60)

    said = kubectl.problem("recover cancel library --partitions 0")

    assert "no operator leads" in said
    assert said.endswith("nothing was changed")
    assert created(api) == []


def test_the_longest_name_of_a_zone_leaves_room(kubectl: Kubectl, api: CannedApi) -> None:
    name = "z" * 50
    whole: Any = api.objects[f"{OURS}/zones/library"]
    api.put(f"{OURS}/zones/{name}", {"spec": whole["spec"], "status": whole["status"]})
    decides(api, "Shown", "nothing was changed: …")

    kubectl(f"recover cancel {name} --partitions 0")

    [path] = [path for path in api.objects if path.startswith(f"{COLLECTION}/")]
    assert len(path.rpartition("/")[2]) == 50
