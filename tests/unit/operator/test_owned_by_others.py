"""Objects that are not the operator's to write: of somebody else, or let go with their owner."""

import time

import msgspec
import pytest

from quorate.protocol.messages.master import ZoneReady
from quorate.wire.storage_cluster import StorageCluster
from quorate_loopback.memory_api import NO_ANSWER
from quorate_operator.kube.api import path_of
from quorate_operator.owned import apply
from quorate_operator.owned.agent_conditions import agent_conditions
from quorate_owned.kubelet import SETS
from quorate_owned.managed import ZONE, Managed

NEW_IMAGE = "localhost/quorate-agent:2"

SERVICES = "/api/v1/namespaces/shop/services"
CLAIMS = "/api/v1/namespaces/shop/persistentvolumeclaims"


ACCOUNT = "/api/v1/namespaces/shop/serviceaccounts/main-agents"
BUDGET = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/main-agents"
CLIENTS = f"{SERVICES}/{ZONE.name}-clients"


@pytest.mark.parametrize("path", [CLIENTS, f"{CLAIMS}/main-agent-2", BUDGET])
async def test_what_somebody_else_has_made_is_not_taken_over(
    undeclared: Managed, path: str
) -> None:
    """An old Redis has the name of the Service, or another application that of the claim."""
    managed = undeclared
    name = path.rpartition("/")[2]
    spec = {"resources": {"requests": {"storage": "10Gi"}}, "ports": []}
    managed.api.put(path, {"metadata": {"name": name, "labels": {"app": "redis"}}, "spec": spec})
    theirs = managed.api.objects[path]
    managed.declare(replicas=4)
    await managed.until(lambda: len(managed.registered) >= 3, "the others are made")
    managed.place_zone()
    for agent in managed.registered:
        managed.world.master.receive(agent, ZoneReady(ZONE.uid, 6379), managed.world.now)

    def refused() -> str:
        view = managed.see()
        return view.refused if view is not None else ""

    await managed.until(refused, "told")
    assert refused().endswith(
        f" shop/{name} was not made by Quorate, and stays as it is: delete it, or label it"
        " quorate.io/cluster=main if it is to be taken over"
    )
    assert managed.api.objects[path] == theirs
    if path.startswith(CLAIMS):
        assert f"{SETS}/main-agent-2" not in managed.api.objects

    metadata = {**theirs["metadata"], "labels": {"quorate.io/cluster": "main"}}
    managed.api.put(path, {**theirs, "metadata": metadata})
    await managed.until(lambda: not refused(), "taken over")
    await managed.until(lambda: len(managed.registered) == 4, "all agents")
    assert managed.api.objects[path]["spec"] != theirs["spec"]


async def test_no_pod_runs_with_the_account_of_somebody_else(undeclared: Managed) -> None:
    managed = undeclared
    managed.api.put(ACCOUNT, {"metadata": {"name": "main-agents", "labels": {"app": "x"}}})
    managed.declare(replicas=2)
    await managed.until(lambda: managed.see() is not None and managed.refused(), "told")
    assert "ServiceAccount shop/main-agents was not made by Quorate" in managed.refused()
    assert managed.kinds("persistentvolumeclaims")
    assert managed.kinds("statefulsets") == []

    del managed.api.objects[ACCOUNT]
    managed.owned._queue.add("main")
    await managed.until(lambda: len(managed.registered) == 2, "both agents")


async def test_a_client_service_of_somebody_else_holds_up_no_new_image(managed: Managed) -> None:
    managed.api.put(CLIENTS, {"metadata": {"name": f"{ZONE.name}-clients"}, "spec": {}})
    await managed.until(managed.is_ready, "ready")
    managed.place_zone()
    for agent in managed.registered:
        managed.world.master.receive(agent, ZoneReady(ZONE.uid, 6379), managed.world.now)

    def unnamed() -> str:
        view = managed.see()
        return view.unnamed.get(ZONE.name, "") if view is not None else ""

    await managed.until(unnamed, "the zone's message")
    assert unnamed().startswith(f"Service shop/{ZONE.name}-clients was not made by Quorate")
    started = len(managed.kubelet.restarted)

    def told() -> str:
        view = managed.see()
        [first, *_] = agent_conditions(managed.cluster, view, {})
        return first[2]

    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: told() == "Replacing", "it says that pods are replaced")
    await managed.until(lambda: len(managed.kubelet.restarted) == started + 3, "all are replaced")
    await managed.until(lambda: told() == "Refused", "then what is refused")


async def test_many_missing_objects_are_looked_for_by_one_list(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = undeclared
    monkeypatch.setattr(apply, "MANY", 2)
    claim = f"{CLAIMS}/main-agent-2"
    managed.api.put(claim, {"metadata": {"name": "main-agent-2"}, "spec": {}})
    theirs = managed.api.objects[claim]
    managed.declare(replicas=4)
    await managed.until(lambda: len(managed.registered) == 3, "the others")

    assert managed.api.objects[claim] == theirs
    assert f"{SETS}/main-agent-2" not in managed.api.objects


async def test_what_cannot_be_looked_for_does_not_hold_up_the_others(undeclared: Managed) -> None:
    managed, lists = undeclared, list[str]()

    def refuse(method: str, path: str) -> int:
        if (method, path) == ("GET", SERVICES):
            lists.append(path)
            return 500 if len(lists) > 1 else 0  # the first one is of all objects by label
        return 0

    managed.api.refuse = refuse
    managed.declare(replicas=2)
    await managed.until(lambda: len(managed.kinds("statefulsets")) == 2, "the others")
    assert managed.kinds("services") == []


async def test_no_pod_runs_with_a_claim_that_could_not_be_looked_for(undeclared: Managed) -> None:
    managed, lists = undeclared, list[str]()

    def refuse(method: str, path: str) -> int:
        if (method, path) == ("GET", CLAIMS):
            lists.append(path)
            return 500 if len(lists) > 1 else 0  # the first one is of all objects by label
        return 0

    managed.api.put(f"{CLAIMS}/main-agent-2", {"metadata": {"name": "main-agent-2"}, "spec": {}})
    managed.api.refuse = refuse
    managed.declare(replicas=3)
    await managed.until(managed.owned.problems, "told")
    assert managed.kinds("statefulsets") == []


async def test_kinds_of_which_two_requests_got_no_answer_wait_for_the_next_look(
    undeclared: Managed,
) -> None:
    """A webhook hangs: each of them takes a worker for seconds."""
    managed = undeclared
    managed.api.refuse = lambda method, path: (
        NO_ANSWER if method == "PATCH" and "claims/" in path else 0
    )
    managed.declare(replicas=9)
    await managed.until(managed.owned.problems, "told")

    asked = {path for method, path in managed.api.requests if method == "PATCH"}
    assert {f"{CLAIMS}/main-agent-1", f"{CLAIMS}/main-agent-2"} <= asked
    assert not asked & {f"{CLAIMS}/main-agent-{number}" for number in range(3, 10)}
    assert managed.kinds("statefulsets") == ["main-agent-1", "main-agent-2"], "claims looked for"
    view = managed.see()
    assert view is not None
    assert len(view.addresses) == 9
    assert "999" in view.refused


async def test_a_stateful_set_behind_hanging_services_is_restored_and_no_pod_replaced(
    managed: Managed,
) -> None:
    await managed.until(managed.is_ready, "ready")
    at = f"{SETS}/main-agent-2"
    managed.api.refuse = lambda method, path: (
        NO_ANSWER if method == "PATCH" and "/services/" in path else 0
    )
    managed.place_zone()
    other = msgspec.structs.replace(ZONE, uid="uid-3", name="basket")
    managed.world.master.set_zone(other, managed.world.now)
    managed.world.pass_time(1_000)
    for agent in managed.registered:
        for zone in (ZONE, other):
            managed.world.master.receive(agent, ZoneReady(zone.uid, 6379), managed.world.now)
    await managed.until(lambda: len(managed.api.writes(f"{other.name}-clients")) > 0, "it hangs")
    del managed.api.objects[at]
    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: at in managed.api.objects, "restored")
    tries = len(managed.api.writes("-clients"))
    await managed.until(lambda: len(managed.api.writes("-clients")) > tries + 2, "looked again")

    assert managed.api.writes("/pods/") == []
    assert "999" in managed.refused()


@pytest.mark.parametrize("is_pruned", [False, True])
async def test_a_cluster_that_is_let_go_is_written_no_more_by_a_look_that_is_under_way(
    managed: Managed, is_pruned: bool
) -> None:
    await managed.until(managed.is_ready, "ready")
    former = managed.api.objects[f"{SERVICES}/main-agents"]
    for name in ("former-clients", "other-clients"):
        metadata = {**former["metadata"], "name": name}
        managed.api.put(f"{SERVICES}/{name}", {**former, "metadata": metadata})
    let_go_at = (
        ("DELETE", f"{SERVICES}/former-clients") if is_pruned else ("PATCH", f"{SETS}/main-agent-1")
    )

    def refuse(method: str, path: str) -> int:
        if (method, path) == let_go_at:
            managed.owned.let_go("main")
        return 0

    managed.api.requests.clear()
    managed.api.refuse = refuse
    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: let_go_at in managed.api.requests, "let go")
    after = managed.api.requests[managed.api.requests.index(let_go_at) + 1 :]
    managed.api.refuse = lambda method, path: 0
    assert [each for each in after if each[0] != "GET"] == []


@pytest.mark.parametrize("is_let_go", [False, True])
async def test_an_object_that_changes_just_before_it_is_written_is_looked_at_again(
    managed: Managed, is_let_go: bool
) -> None:
    """A request may wait a minute for its turn; Kubernetes takes the owner away meanwhile."""
    await managed.until(managed.is_ready, "ready")
    at, main = f"{SETS}/main-agent-2", path_of("shop", StorageCluster.plural, "main")
    cluster, changed = managed.api.objects[main], list[str]()

    def refuse(method: str, path: str) -> int:
        if (method, path) != ("PATCH", at) or changed:
            return 0
        changed.append(path)
        present = managed.api.objects[at]
        metadata = dict(present["metadata"])
        if is_let_go:
            metadata["ownerReferences"] = []
            deleted = {**cluster["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            managed.api.put(main, {**cluster, "metadata": deleted})
        managed.api.put(at, {**present, "metadata": metadata})
        return 0

    managed.api.refuse = refuse
    managed.declare(image=NEW_IMAGE)
    if is_let_go:
        await managed.until(lambda: "is to outlive" in managed.refused(), "told")
        assert not managed.api.objects[at]["metadata"]["ownerReferences"]
    else:
        await managed.until(lambda: len(managed.api.writes(at)) > 1 and bool(changed), "again")
        assert managed.api.objects[at]["spec"]["template"]["spec"]["containers"][0]["image"] == (
            NEW_IMAGE
        )


async def test_what_lost_its_owner_before_the_operator_started_is_let_go(managed: Managed) -> None:
    """`--cascade=orphan`; only our finalizer holds the StorageCluster still."""
    await managed.until(managed.is_ready, "ready")
    await managed.owned.close()
    uid, at = managed.cluster.metadata.uid, f"{SETS}/main-agent-2"
    metadata = {"name": "main", "uid": uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    managed.api.put(path_of("shop", StorageCluster.plural, "main"), {"metadata": metadata})
    for path in (at, BUDGET):
        freed = {**managed.api.objects[path]["metadata"], "ownerReferences": []}
        managed.api.put(path, {**managed.api.objects[path], "metadata": freed})
    await managed.until(lambda: managed.see() is not None, "the next operator has looked")

    assert not managed.api.objects[at]["metadata"]["ownerReferences"]
    assert not managed.api.objects[BUDGET]["metadata"]["ownerReferences"]
    assert "is to outlive its StorageCluster" in managed.refused()


async def test_objects_that_are_to_outlive_their_storage_cluster_are_let_go(
    managed: Managed,
) -> None:
    """`kubectl delete --cascade=orphan`: an owner that they got back would take them with it."""
    await managed.until(managed.is_ready, "ready")
    declared = managed.cluster.metadata
    for finalizers in (["quorate.io/x", "orphan"], ["quorate.io/x"]):
        metadata = declared.model_copy(update={"finalizers": finalizers})
        managed.cluster = managed.cluster.model_copy(update={"metadata": metadata})
        assert managed.see() is None
    at = "/apis/apps/v1/namespaces/shop/statefulsets/main-agent-2"
    freed = managed.api.objects[at]["metadata"] | {"ownerReferences": []}
    managed.api.put(at, {**managed.api.objects[at], "metadata": freed})
    writes = len(managed.api.requests)

    deadline = time.monotonic() + 1
    await managed.until(lambda: time.monotonic() > deadline, "a while later")

    assert managed.api.requests[writes:] == []
    assert not managed.api.objects[at]["metadata"]["ownerReferences"]
