"""Drain, replace, cli and report on canned objects: what is asked of the API server."""

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quorate_cli.kubectl import drain
from quorate_cli.kubectl.app import app
from quorate_cli.kubectl.exec_client import exec_command
from quorate_cli.kubectl.kube_api import Conflict, KubeApi, Unreached
from quorate_cli.kubectl.objects import the_cluster
from quorate_cli.kubectl.options import Place
from quorate_cli.kubectl.replace import find_freed, free
from quorate_cli.terminal.problem import Problem
from quorate_kubectl.canned import (
    CORE,
    LEASE,
    OURS,
    Answer,
    CannedApi,
    Kubectl,
    condition,
    kubeconfig,
    register,
    renewed,
    tables,
)

MAIN = f"{OURS}/storageclusters/main"
POD, CLAIM = f"{CORE}/pods/main-agent-3-0", f"{CORE}/persistentvolumeclaims/main-agent-3"


def changes(api: CannedApi) -> list[tuple[str, str]]:
    return [
        (method, path)
        for method, path, body in api.asked
        if method != "GET" and "dryRun" not in body
    ]


def obeys(api: CannedApi, *conditions: dict[str, Any]) -> None:
    """The operator looks at each change at once."""
    main: Any = api.objects[MAIN]
    main["status"]["observedGeneration"] = 99
    main["status"]["conditions"] = [condition("Ready", "True"), *conditions]


def lose(api: CannedApi, agent: str = "agent-3") -> None:
    register(api, agent, left=True)
    pod: Any = api.objects[f"{CORE}/pods/main-{agent}-0"]
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def test_a_drain_is_declared_and_followed(kubectl: Kubectl, api: CannedApi) -> None:
    obeys(api, condition("AgentsDrained", "True", "no copies are left", "Drained"))

    text = kubectl("drain", "agent-2")

    assert "storagecluster/main changed: spec.drainAgents: agent-2" in text
    assert "agent agent-2 has no copies" in text
    assert api.objects[MAIN]["spec"]["drainAgents"] == ["agent-2"]
    [patch] = [body for method, _, body in api.asked if method == "PATCH"]
    assert patch == {"metadata": {"resourceVersion": "1"}, "spec": {"drainAgents": ["agent-2"]}}
    assert "unchanged" in kubectl("drain", "agent-2")

    assert "spec.drainAgents: none" in kubectl("undrain", "agent-2")
    assert api.objects[MAIN]["spec"]["drainAgents"] == []
    assert "StorageCluster main: that contains none" in kubectl.problem("undrain", "agent-2")


def test_a_drain_beside_another_change_loses_neither(kubectl: Kubectl, api: CannedApi) -> None:
    def changed(path: str) -> None:
        api.on_patch = lambda path: None
        main: Any = api.objects[MAIN]
        main["metadata"]["resourceVersion"] = "7"
        main["spec"]["drainAgents"] = ["agent-1"]

    api.on_patch = changed

    kubectl("drain", "agent-2", "--wait", "0")

    assert api.objects[MAIN]["spec"]["drainAgents"] == ["agent-1", "agent-2"]


def test_a_drain_that_is_refused_says_why_and_how_to_take_it_back(
    kubectl: Kubectl, api: CannedApi
) -> None:
    why = "node agent-2: zone library needs 3 agents and 2 would remain; add an agent first"
    obeys(api, condition("AgentsDrained", "False", why, "Refused"))

    said = kubectl.problem("drain", "agent-2")

    assert said.startswith(why)
    assert f"undo: kubectl quorate undrain agent-2 --kubeconfig {kubectl.kubeconfig}" in said


def test_a_command_that_takes_it_back_names_the_same_cluster(
    kubectl: Kubectl, api: CannedApi
) -> None:
    obeys(api, condition("AgentsDrained", "True", "no copies are left", "Drained"))
    place = ["--context=there", "-n", "shop", "--operator-namespace=shop", "--cluster=main"]

    text = kubectl("drain", "agent-2", *place)

    assert text.endswith(
        f"; undo: kubectl quorate undrain agent-2 --kubeconfig {kubectl.kubeconfig}"
        " --context there --namespace shop --operator-namespace shop --cluster main\n"
    )
    said = kubectl.problem("replace", "agent-3", "--yes", "-n", "shop")
    assert said.endswith(
        f"drain agent-3 --kubeconfig {kubectl.kubeconfig} --namespace shop --cluster main"
    )
    lose(api)
    assert " status --watch --kubeconfig " in kubectl("replace", "agent-3", "--yes", *place)


def test_a_drain_is_done_when_its_own_agent_has_no_copies(kubectl: Kubectl, api: CannedApi) -> None:
    """Another agent cannot be drained: the condition is of both."""
    why = "node agent-3: zone library needs 3 agents and 2 would remain; add an agent first"
    obeys(api, condition("AgentsDrained", "False", why, "Refused"))
    status: Any = api.objects[MAIN]["status"]
    said = kubectl.problem("drain", "agent-2", "--wait", "0.1")
    assert f"not done within 0.1 s: {why}; the drain of agent agent-2 stays declared" in said
    status["emptied"] = ["agent-2"]

    assert "agent agent-2 has no copies" in kubectl("drain", "agent-2", "--wait", "0.1")


def away(monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> None:
    """The API server does not answer the first `times` requests about the cluster main."""
    ask, left = getattr(KubeApi, method), [None] * times

    def asked(self: KubeApi, path: str, *body: Any, **query: Any) -> Any:
        if path == MAIN and left:
            left.pop()
            raise Unreached("no route")
        return ask(self, path, *body, **query)

    monkeypatch.setattr(KubeApi, method, asked)


def test_a_drain_is_followed_over_a_lost_answer(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    obeys(api, condition("AgentsDrained", "True", "no copies are left", "Drained"))
    monkeypatch.setattr(drain, "POLL_S", 0.01)
    away(monkeypatch, "get", 2)
    assert "agent agent-2 has no copies" in kubectl("drain", "agent-2")

    monkeypatch.setattr(drain, "UNREACHED_S", 0)
    away(monkeypatch, "get", 1)
    said = kubectl.problem("drain", "agent-2")
    assert said.startswith(
        "no route; the drain of agent agent-2 stays declared and continues; undo: kubectl quorate"
    )


def test_a_drain_whose_declaration_has_no_answer_is_unknown(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    away(monkeypatch, "patch", 1)

    assert kubectl.problem("drain", "agent-2") == (
        "no route; whether agent agent-2 was added to spec.drainAgents is unknown: run the command"
        " again"
    )


def test_an_interrupted_drain_says_that_it_continues(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    done = CliRunner().invoke(app, ["drain", "agent-2", f"--kubeconfig={kubectl.kubeconfig}"])

    assert done.exit_code == 130
    assert "the drain of agent agent-2 stays declared and continues; undo: kubectl" in done.stderr


def test_options_of_a_printed_command_are_quoted() -> None:
    place = Place("/my files/$config", "", "shop", "ops")

    assert (
        place.words == " --kubeconfig '/my files/$config' --namespace shop --operator-namespace ops"
    )
    assert place.kubectl_words == " --kubeconfig '/my files/$config' --namespace shop"


def test_a_drain_of_nobody_or_without_an_operator(kubectl: Kubectl, api: CannedApi) -> None:
    said = kubectl.problem("drain", "agent-9")
    assert said == (
        "agent 'agent-9' is not registered in StorageCluster main:"
        " registered agents are agent-1, agent-2, agent-3"
    )
    renewed(api, 60)
    assert "declared, but not carried out: no operator leads" in kubectl.problem("drain", "agent-1")
    del api.objects[MAIN]
    assert "has no StorageCluster" in kubectl.problem("drain", "agent-1")


def test_a_lost_agent_is_replaced(kubectl: Kubectl, api: CannedApi) -> None:
    lose(api)

    text = kubectl("replace", "agent-3", "--yes")

    assert "pod main-agent-3-0 on node node-7 will be deleted at once" in text
    assert "claim main-agent-3 with its volume pv-agent-3 will be deleted" in text
    assert changes(api) == [("DELETE", CLAIM), ("DELETE", POD)]
    asked = {path: body for method, path, body in api.asked if method == "DELETE"}
    assert asked[POD]["gracePeriodSeconds"] == 0
    assert asked[CLAIM]["preconditions"] == {"uid": "uid-of-main-agent-3"}


def test_a_claim_is_not_deleted_where_the_pod_may_not_be(kubectl: Kubectl, api: CannedApi) -> None:
    lose(api)
    api.refused["DELETE", POD] = Answer(403, {"message": "pods is forbidden"})

    assert "pods is forbidden" in kubectl.problem("replace", "agent-3", "--yes")
    assert CLAIM in api.objects


def test_a_claim_that_was_deleted_without_its_pod_is_told(kubectl: Kubectl, api: CannedApi) -> None:
    lose(api)

    def refuse(path: str) -> None:
        api.on_delete = lambda path: None
        api.refused["DELETE", POD] = Answer(500, {"message": "etcdserver: no leader"})

    api.on_delete = refuse

    said = kubectl.problem("replace", "agent-3", "--yes")
    assert "etcdserver: no leader; claim main-agent-3 is deleted already" in said
    assert said.endswith("its data is lost when the agent's pod ends: run the command again")
    api.refused.clear()
    renewed(api, 1)
    kubectl("replace", "agent-3", "--yes")
    assert POD not in api.objects


def deletes(monkeypatch: pytest.MonkeyPatch, path: str, end: BaseException) -> None:
    """The real deletion of `path` is done, and its answer does not come."""
    delete = KubeApi.delete

    def deleted(self: KubeApi, at: str, body: Any) -> None:
        delete(self, at, body)
        if at == path and "dryRun" not in body:
            raise end

    monkeypatch.setattr(KubeApi, "delete", deleted)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (
            CLAIM,
            "whether claim main-agent-3 is deleted is unknown; if it is, its data is lost when",
        ),
        (POD, "claim main-agent-3 is deleted already, and its data is lost when the agent's pod"),
    ],
)
def test_a_deletion_without_an_answer_says_what_may_be_lost(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch, path: str, told: str
) -> None:
    lose(api)
    deletes(monkeypatch, path, Unreached("API server x cannot be reached"))

    said = kubectl.problem("replace", "agent-3", "--yes")

    assert said.startswith(f"agent agent-3: API server x cannot be reached; {told}")
    names_claim = "kubectl get persistentvolumeclaim main-agent-3 --kubeconfig" in said
    assert names_claim == (path == CLAIM)
    assert said.endswith("run the command again")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (CLAIM, "interrupted; whether claim main-agent-3 is deleted is unknown"),
        (POD, "interrupted; claim main-agent-3 is deleted already"),
    ],
)
def test_an_interrupted_deletion_says_what_may_be_lost(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch, path: str, told: str
) -> None:
    lose(api)
    deletes(monkeypatch, path, KeyboardInterrupt())
    words = ["replace", "agent-3", "--yes", f"--kubeconfig={kubectl.kubeconfig}"]

    done = CliRunner().invoke(app, words)

    assert done.exit_code == 130
    assert told in done.stderr


def test_a_claim_whose_deletion_is_refused_is_not_told_as_unknown(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(api)
    deletes(monkeypatch, CLAIM, Conflict("another uid"))

    assert kubectl.problem("replace", "agent-3", "--yes") == "another uid"


def test_another_operators_lease_does_not_say_that_this_one_leads(
    kubectl: Kubectl, api: CannedApi
) -> None:
    """Two releases in other namespaces: the one that serves shop is dead."""
    lose(api)
    of_shop, of_blog = (LEASE.replace("/shop/", f"/{place}/") for place in ("ops", "tools"))
    healthy = api.objects.pop(LEASE)["spec"]
    renewed(api, 60)
    api.put(of_shop, {"spec": api.objects.pop(LEASE)["spec"]})
    api.put(of_blog, {"spec": {**healthy, "holderIdentity": "pod-b/1/y"}})

    dead = "no operator leads: Lease quorate-operator in namespace ops was last renewed"
    assert dead in kubectl.problem("replace", "agent-3", "--yes")
    assert dead in " ".join(kubectl("status").split())
    del api.objects[of_shop]
    said = kubectl.problem("replace", "agent-3", "--yes")
    assert "whether an operator runs is unknown" in said
    assert "--operator-namespace" in said
    assert "whether an operator runs is unknown" in " ".join(kubectl("status").split())
    assert changes(api) == []
    renewed(api, 1)
    api.put(of_shop, {"spec": api.objects.pop(LEASE)["spec"]})
    kubectl("replace", "agent-3", "--yes")
    assert CLAIM not in api.objects


def test_a_lease_that_an_ended_operator_has_released_says_that_none_leads(
    kubectl: Kubectl, api: CannedApi
) -> None:
    lose(api)
    elsewhere = LEASE.replace("/shop/", "/ops/")
    api.put(elsewhere, {"spec": {**api.objects.pop(LEASE)["spec"], "holderIdentity": ""}})

    none = "no operator leads: Lease quorate-operator in namespace ops has no holder"
    assert none in kubectl.problem("replace", "agent-3", "--yes")
    assert none in " ".join(kubectl("status").split())


def test_nothing_is_replaced_where_writes_could_be_lost(kubectl: Kubectl, api: CannedApi) -> None:
    lose(api)
    register(api, "agent-2", left=True)

    said = kubectl.problem("replace", "agent-3", "--yes")

    assert "acknowledged writes could be lost" in said
    assert "partition 0 of Zone library would keep 1 of 3 copies, and needs 2" in said
    assert "agent-2 missing as well" in said
    assert changes(api) == []


def test_nothing_is_replaced_while_rows_are_missing(kubectl: Kubectl, api: CannedApi) -> None:
    lose(api)
    del api.objects[f"{OURS}/partitiontables/uid-of-library-000"]
    assert "rows of Zone library are missing" in kubectl.problem("replace", "agent-3", "--yes")
    tables(api)
    del api.objects[f"{OURS}/partitiontables/uid-of-library-head"]
    assert "uid-of-library-head is missing" in kubectl.problem("replace", "agent-3", "--yes")
    assert changes(api) == []


def test_who_is_there_or_unknown_is_not_replaced(kubectl: Kubectl, api: CannedApi) -> None:
    assert "agent-3 is online" in kubectl.problem("replace", "agent-3", "--yes")
    assert "'agent-9' is not registered" in kubectl.problem("replace", "agent-9", "--yes")
    register(api, "agent-3", left=True)
    said = kubectl.problem("replace", "agent-3", "--yes")
    assert "its pod main-agent-3-0 is Ready" in said
    assert "If its node has lost power, wait until" in said
    lose(api)
    assert "confirm with --yes" in kubectl.problem("replace", "agent-3")
    renewed(api, 60)
    assert "no operator leads" in kubectl.problem("replace", "agent-3", "--yes")
    renewed(api, 1)
    api.objects[MAIN]["spec"] = {"external": {"addresses": ["h:1"]}}
    assert "agents that you start yourself" in kubectl.problem("replace", "agent-3", "--yes")
    assert changes(api) == []


def test_the_client_is_run_in_a_pod_that_takes_clients(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(api, "agent-1")
    commands: list[list[str]] = []
    monkeypatch.setattr("quorate_cli.kubectl.exec_client.run", commands.append)

    kubectl("cli", "library", "set", "greeting", "-n")

    assert commands == [
        [
            "kubectl", "exec", f"--kubeconfig={kubectl.kubeconfig}", "--context=here",
            "--namespace=shop", "--container=agent", "main-agent-2-0", "--",
            "python3", "-m", "quorate_cli.plain_client", "10.0.0.1:7200", "set", "greeting", "-n",
        ]
    ]  # fmt: skip


def test_what_is_set_aside_is_asked_for_in_a_pod(
    kubectl: Kubectl, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kubectl("aside list") == "nothing is set aside\n"
    lose(api, "agent-1")
    commands: list[list[str]] = []
    monkeypatch.setattr("quorate_cli.kubectl.exec_client.run", commands.append)
    said = kubectl.problem("aside list")
    assert said == "no agent that answered has set anything aside; unknown: agent-1"
    status: Any = api.objects[f"{OURS}/zones/library"]["status"]
    status["setAside"] = {"agent-2": 1}

    kubectl("aside list")
    kubectl("aside show", "library", "3", "--agent", "agent-2", "--key", "-k", "--differs")

    about = ["--cluster=main", "--secret-file=/secret", "--at=agent-1=10.0.0.1:7100"]
    for command, words in zip(
        commands,
        (
            ["list", "library"],
            ["show", "library", "3", "--agent=agent-2", "--key=-k", "--differs"],
        ),
        strict=True,
    ):
        said = command[command.index("--") :]
        assert said[:4] == ["--", "python3", "-m", "quorate_cli.aside_client"]
        assert said[4 : 4 + len(words)] == words
        assert said[4 + len(words) :][:3] == about


def test_input_and_terminal_are_handed_on(tmp_path: Path) -> None:
    api = KubeApi(str(kubeconfig(tmp_path / "config", "http://127.0.0.1:1")))
    typed = exec_command(api, "shop", "p", "h:1", (), True)
    piped = exec_command(api, "shop", "p", "h:1", (), False)

    assert [word for word in typed if word.startswith("--")] == [
        f"--kubeconfig={tmp_path / 'config'}", "--context=here", "--namespace=shop", "--stdin",
        "--tty", "--container=agent", "--",
    ]  # fmt: skip
    assert "--stdin" in piped
    assert "--tty" not in piped


def test_a_zone_without_pods_names_its_endpoints(kubectl: Kubectl, api: CannedApi) -> None:
    for path in [path for path in api.objects if path.startswith(f"{CORE}/pods/")]:
        del api.objects[path]

    assert "endpoints: 10.0.0.1:7200" in kubectl.problem("cli", "library", "ping")


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("plain_client", ["127.0.0.1:1", "ping"], "quorate: 127.0.0.1:1 cannot be reached"),
        (
            "aside_client",
            ["list", "z", "--cluster=c", "--at=a=127.0.0.1:1", "--secret-file=absent"],
            "a: what it has set aside is unknown: a at 127.0.0.1:1: absent",
        ),
    ],
)
def test_a_client_in_the_pod_needs_no_library_of_the_command_line(
    module: str, words: list[str], said: str
) -> None:
    """The agent's image has none of these."""
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'kubernetes', 'yaml', 'redis', 'click'):\n"
        "    sys.modules[name] = None\n"
        f"sys.argv = {[module, *words]!r}\n"
        "import runpy\n"
        f"runpy.run_module('quorate_cli.{module}', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr.startswith(said)


def test_a_report_has_objects_and_logs_and_no_secret(
    kubectl: Kubectl, api: CannedApi, tmp_path: Path
) -> None:
    api.put(f"{CORE}/secrets/main-quorate", {"data": {"key": "very-secret"}})
    main: Any = api.objects[MAIN]
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "very-secret"}
    main["metadata"] |= {"annotations": applied, "managedFields": [{"manager": "very-secret"}]}
    pod: Any = api.objects[f"{CORE}/pods/main-agent-1-0"]
    pod["status"]["containerStatuses"] = [{"name": "agent", "restartCount": 2}]
    for agent in ("agent-1", "agent-2"):
        api.texts[f"{CORE}/pods/main-{agent}-0/log"] = f"log of {agent}".encode()
    api.refused["GET", f"{CORE}/pods/main-agent-3-0/log"] = Answer(500, {"message": "no kubelet"})
    api.refused["GET", "/version"] = Answer(403, {"message": "version is forbidden"})

    text = kubectl("report", "-o", "bundle.tar.gz")

    assert "2 items could not be read" in text
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        files: dict[str, bytes] = {}
        for member in archive.getmembers():
            opened = archive.extractfile(member)
            assert opened is not None
            files[member.name.removeprefix("bundle/")] = opened.read()
    assert not any(b"very-secret" in content for content in files.values())
    assert not any("/secrets" in path for _, path, _ in api.asked)
    assert b"value: (left out)" in files["objects/pods/main-agent-1-0.yaml"]
    assert b"phase: Available" in files["objects/zones/library.yaml"]
    assert "objects/leases/quorate-operator.yaml" in files
    assert files["logs/main-agent-1-0/agent.log"] == b"log of agent-1"
    assert "logs/main-agent-1-0/agent.previous.log" in files
    assert b"3 of 3 agents online" in files["status.txt"]
    assert b"no kubelet" in files["missing.txt"]
    assert b"version is forbidden" in files["missing.txt"]


def test_the_verdict_is_looked_at_again_before_anything_is_deleted(
    kubectl: Kubectl, api: CannedApi
) -> None:
    """A person takes a while to say yes."""
    lose(api)
    asked = KubeApi(str(kubectl.kubeconfig))
    cluster = the_cluster(asked, "shop")
    freed = find_freed(asked, cluster, "agent-3", Place("", "", "shop", ""))
    register(api, "agent-2", left=True)

    with pytest.raises(Problem, match="acknowledged writes could be lost"):
        free(asked, cluster, freed)

    assert changes(api) == []


def test_a_report_into_a_folder_that_is_not_there_asks_for_nothing(
    kubectl: Kubectl, api: CannedApi
) -> None:
    said = kubectl.problem("report", "--output", "none/bundle.tar.gz")

    assert "folder" in said
    assert said.endswith("none does not exist: create it")
    assert api.asked == []
