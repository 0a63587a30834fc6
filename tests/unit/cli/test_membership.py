"""What `quorate dev` tells the operator of its agents."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorate.protocol.status import NodeStatus
from quorate.wire.storage_cluster import external
from quorate_cli.dev import membership
from quorate_cli.dev.membership import Membership
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.objects.operator_api import NotReady, NotThere
from quorate_cli.processes.cluster_folder import FORMAT_VERSION, AgentEntry, ClusterEntry
from quorate_cli.terminal.problem import Problem

ENTRY = ClusterEntry(FORMAT_VERSION, "main", (AgentEntry("agent-1", 7101),), 2, 7000, False)
EARLIER = {"agents": "external", "addresses": ["127.0.0.1:7101"]}


class Operator:
    """Knows one object, or none."""

    def __init__(self, spec: dict[str, Any] | None, **metadata: object) -> None:
        self.spec = spec
        self.metadata: dict[str, object] = {"name": "main", **metadata}
        self.puts: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []

    def api(self) -> "Operator":
        return self

    def get(self, path: str, of: object) -> dict[str, Any]:
        if self.spec is None:
            raise NotThere(path)
        return {"metadata": self.metadata, "spec": self.spec}

    def put(self, path: str, body: dict[str, Any], of: object) -> None:
        self.puts.append(body["spec"])
        self.told.append(body["metadata"])


@pytest.mark.parametrize("known", [None, EARLIER])
def test_a_cluster_of_the_earlier_form_is_declared_in_the_new_one(
    known: dict[str, Any] | None,
) -> None:
    operator = Operator(known)
    Membership(operator, print).declare(ENTRY)

    assert operator.puts == [external(["127.0.0.1:7101"])]


def test_what_a_user_declared_besides_stays_and_what_is_known_is_not_told_again() -> None:
    operator = Operator({**EARLIER, "deletionPolicy": "Delete"})
    Membership(operator, print).declare(ENTRY)
    told = {"deletionPolicy": "Delete", **external(["127.0.0.1:7101"])}
    assert operator.puts == [told]

    operator = Operator(told)
    Membership(operator, print).declare(ENTRY)
    assert operator.puts == []


@pytest.mark.parametrize("known", [None, EARLIER])
def test_labels_and_annotations_stay(known: dict[str, Any] | None) -> None:
    given = {"labels": {"team": "a"}, "annotations": {"quorate.io/paused": "true"}}
    operator = Operator(known, **given)
    Membership(operator, print).declare(ENTRY)

    assert operator.told == [{"name": "main", **({} if known is None else given)}]


def test_a_drain_is_taken_back_also_of_an_agent_that_is_offline() -> None:
    node = NodeStatus("agent-1", "s", 1, False, "Offline", "h:1", "", 0, 0, draining=True)
    posted: list[str] = []
    cluster = SimpleNamespace(
        state=lambda: ClusterState("main", "me", "", 7, (node,), ()),
        api=lambda: SimpleNamespace(post=posted.append),
    )

    Membership(cluster, print).take_drains_back(ENTRY)

    assert posted == ["/nodes/agent-1/undrain?cluster=main"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ClusterState("main", "me", "it ended: I-3", 7, (), ()), "not led: it ended: I-3; see "),
        (ClusterState("main", "me", "", 7, (), ()), "did not join within 0 s: see "),
        (NotReady("main is not known yet"), "0 s: main is not known yet; see "),
    ],
)
def test_who_does_not_join_is_told_whether_anybody_leads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: ClusterState | NotReady, said: str
) -> None:
    def state() -> ClusterState:
        if isinstance(answer, NotReady):
            raise answer
        return answer

    monkeypatch.setattr(membership, "START_S", 0)
    running = SimpleNamespace(process=lambda _name: 1, log=lambda _name: tmp_path)
    cluster = SimpleNamespace(folder=running, state=state)

    with pytest.raises(Problem, match=said):
        Membership(cluster, print).wait_for(["agent-1"])
