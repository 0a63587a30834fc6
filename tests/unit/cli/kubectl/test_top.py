"""`kubectl quorate top`: metrics of canned pods, read through the API server's proxy."""

import json
from typing import Any

import pytest

from quorate_cli.kubectl import kube_api, top
from quorate_cli.kubectl.kube_api import KubeApi, Unreached
from quorate_kubectl.canned import CORE, OURS, Answer, CannedApi, Kubectl, register

OPERATORS = "/api/v1/namespaces/quorate-system/pods"
OPERATOR = {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "operator"}


def _agent(api: CannedApi, name: str, reads: int = 0) -> None:
    of = f'quorate_commands_total{{zone="library",family="read",result="ok"}} {reads}\n'
    text = f'{of}quorate_master_connected 1\nquorate_replication_lag_updates{{zone="library"}} 7\n'
    api.texts[f"{CORE}/pods/main-{name}-0:8080/proxy/metrics"] = text.encode()


def _operator(api: CannedApi, name: str, leads: int, at: str = OPERATORS) -> None:
    api.put(f"{at}/{name}", {"metadata": {"labels": OPERATOR}, "status": {"phase": "Running"}})
    lines = [f"quorate_operator_is_master {leads}"]
    for cluster, whole in (("main", 4), ("other", 99)):
        of = f'namespace="shop",cluster="{cluster}",zone="library"'
        lines += [
            f'quorate_operator_partitions{{{of},state="available"}} {whole * leads}',
            f'quorate_operator_partitions{{{of},state="degraded"}} 0',
        ]
    api.texts[f"{at}/{name}:8080/proxy/metrics"] = "".join(f"{each}\n" for each in lines).encode()


@pytest.fixture
def pods(api: CannedApi) -> CannedApi:
    """Three agents and two operators answer."""
    for number, name in enumerate(("agent-1", "agent-2", "agent-3")):
        _agent(api, name, reads=number)
    _operator(api, "operator-a", leads=0)
    _operator(api, "operator-b", leads=1)
    return api


def _read(kubectl: Kubectl, *arguments: str) -> Any:
    return json.loads(kubectl("top --json --interval=0.1", *arguments))


def test_agents_and_zones_are_those_of_the_pods_and_of_the_operator_that_leads(
    kubectl: Kubectl, pods: CannedApi
) -> None:
    load = _read(kubectl)

    [zone] = load["zones"]
    assert load["operator_problem"] == ""
    assert [each["name"] for each in load["agents"]] == ["agent-1", "agent-2", "agent-3"]
    assert all(each["led"] and not each["problem"] for each in load["agents"])
    assert (zone["name"], zone["lag_updates"]) == ("library", 7)
    assert (zone["available"], zone["degraded"]) == (4, 0), "of this cluster, not of the other"


def test_one_interval_is_shown_as_tables(kubectl: Kubectl, pods: CannedApi) -> None:
    shown = kubectl("top --once --interval=0.1")

    for word in ("library", "agent-1", "agent-3", "led", "4/0/"):
        assert word in shown
    assert "silent" not in shown


def test_what_does_not_answer_is_named_with_the_reason(kubectl: Kubectl, pods: CannedApi) -> None:
    refused = Answer(503, {"message": "dial tcp 10.0.0.2:8080: connect: connection refused"})
    pods.refused["GET", f"{CORE}/pods/main-agent-2-0:8080/proxy/metrics"] = refused
    pods.objects[f"{CORE}/pods/main-agent-3-0"]["status"] = {"phase": "Pending"}
    pods.texts[f"{CORE}/pods/main-agent-1-0:8080/proxy/metrics"] = b"<html>\n"
    register(pods, "agent-9")

    why = {each["name"]: each["problem"] for each in _read(kubectl)["agents"]}

    assert "connection refused" in why["agent-2"]
    assert why["agent-3"] == "its pod is Pending"
    assert "something else than metrics" in why["agent-1"]
    assert "it has no pod" in why["agent-9"]
    text = " ".join(kubectl("top --once --interval=0.1").split())
    assert "agent-2: GET" in text
    assert text.count("silent") == 4


def test_a_pod_that_is_gone_costs_no_more_than_its_time(
    kubectl: Kubectl, pods: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []
    read = KubeApi.text_within

    def hang(self: KubeApi, path: str, seconds: float) -> bytes:
        asked.append((path, seconds))
        if "agent-1" in path:
            raise Unreached("timed out")
        return read(self, path, seconds)

    monkeypatch.setattr(kube_api.KubeApi, "text_within", hang)

    one, two, _ = _read(kubectl)["agents"]

    assert one["problem"] == "pod main-agent-1-0 does not answer within 5 s"
    assert two["problem"] == ""
    assert {seconds for _, seconds in asked} == {top.ANSWER_S}


def test_without_an_operator_that_leads_partitions_are_not_known(
    kubectl: Kubectl, pods: CannedApi
) -> None:
    _operator(pods, "operator-b", leads=0)
    load = _read(kubectl)

    assert load["operator_problem"] == "no operator leads"
    assert load["zones"][0]["available"] is None
    assert "operator: no operator leads" in kubectl("top --once --interval=0.1")


def test_the_operator_is_looked_for_here_then_everywhere(kubectl: Kubectl, api: CannedApi) -> None:
    _agent(api, "agent-1")
    assert _read(kubectl)["operator_problem"] == "no pod of the operator runs in any namespace"

    api.refused["GET", "/api/v1/pods"] = Answer(403, {"message": "pods is forbidden"})
    assert "name its namespace with --operator-namespace" in _read(kubectl)["operator_problem"]

    _operator(api, "operator-a", leads=1)
    there = _read(kubectl, "--operator-namespace=quorate-system")
    assert (there["operator_problem"], there["zones"][0]["available"]) == ("", 4)

    _operator(api, "operator-c", leads=1, at=f"{CORE}/pods")
    assert _read(kubectl)["operator_problem"] == ""


def test_without_the_right_it_says_which_one_is_missing(kubectl: Kubectl, pods: CannedApi) -> None:
    path = f"{CORE}/pods/main-agent-1-0:8080/proxy/metrics"
    message = 'pods "main-agent-1-0:8080" is forbidden: cannot get resource "pods/proxy"'
    pods.refused["GET", path] = Answer(403, {"message": message})

    problem = kubectl.problem("top --once --interval=0.1")

    assert "pods/proxy" in problem
    assert "ask for a role" in problem


@pytest.mark.parametrize("forbidden", ["metrics", "pods"])
def test_without_rights_to_the_operator_agents_are_shown_all_the_same(
    kubectl: Kubectl, pods: CannedApi, forbidden: str
) -> None:
    """A user of one namespace may read no pod of the operator's."""
    refused = Answer(403, {"message": f"{forbidden} of the operator are forbidden"})
    path = f"{OPERATORS}/operator-b:8080/proxy/metrics" if forbidden == "metrics" else OPERATORS
    pods.refused["GET", path] = refused

    load = _read(kubectl, "--operator-namespace=quorate-system")

    assert f"{forbidden} of the operator are forbidden" in load["operator_problem"]
    assert load["zones"][0]["available"] is None
    assert all(each["led"] and not each["problem"] for each in load["agents"])


def test_several_clusters_are_told_apart(kubectl: Kubectl, pods: CannedApi) -> None:
    pods.put(f"{OURS}/storageclusters/other", {"spec": {}})

    assert "name one with --cluster: main, other" in kubectl.problem("top --once")
    assert _read(kubectl, "--cluster=main")["zones"][0]["available"] == 4
