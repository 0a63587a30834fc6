"""Managed agents beside a master that has their rows: made, replaced one by one, fewer, none."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.messages.master import ZoneReady
from quorate_operator.kube.api import ApiUnclear
from quorate_operator.names import CONDITION_AGENTS_UPDATED
from quorate_operator.owned import budget, owned_objects
from quorate_operator.owned.agent_conditions import agent_conditions
from quorate_owned.facts import managed_cluster
from quorate_owned.kubelet import BAD_IMAGE, PODS, SETS
from quorate_owned.managed import ZONE, Managed

NEW_IMAGE = "localhost/quorate-agent:2"
Json = dict[str, Any]


def updated(managed: Managed) -> tuple[bool | None, str, str]:
    """Return the condition AgentsUpdated: whether it is so, the reason and the message."""
    facts = agent_conditions(managed.cluster, managed.see(), {})
    [found] = [fact[1:] for fact in facts if fact[0] == CONDITION_AGENTS_UPDATED]
    return found


async def test_agents_are_made_and_dialed_by_name(managed: Managed) -> None:
    names = ["main-agent-1", "main-agent-2", "main-agent-3"]
    await managed.until(managed.is_ready, "ready")
    view = managed.see()

    assert managed.kinds("statefulsets") == managed.kinds("persistentvolumeclaims") == names
    assert managed.kinds("services") == managed.kinds("serviceaccounts") == ["main-agents"]
    assert view is not None
    assert view.addresses == [f"{name}-0.main-agents.shop.svc:7100" for name in names]


async def test_clients_outside_are_led_to_where_services_and_pods_are_now(managed: Managed) -> None:
    names = ["agent-1", "agent-2", "agent-3"]
    world = managed.world
    world.client_ports = dict.fromkeys(names, (7200, 7299))
    world.external = dict.fromkeys(names, "")
    managed.declare(listeners={"external": {"type": "LoadBalancer"}})
    await managed.until(lambda: len(managed.kubelet.restarted) == 6, "pods of the new template")
    managed.place_zone()
    for agent in names:
        world.master.receive(agent, ZoneReady(ZONE.uid, 7200), world.now)

    def zone() -> ZoneRecord:
        return managed.runner.known_zones()[ZONE.uid]

    def hosts() -> list[str]:
        return [node.external_host for node in managed.runner.status().nodes]

    def unreachable() -> dict[str, str]:
        view = managed.see()
        return (view.unreachable if view is not None else None) or {}

    await managed.until(lambda: unreachable().keys() == {*names}, "no address")
    assert (hosts(), zone().external_ports) == ([""] * 3, {})
    for agent in names:
        at = f"/api/v1/namespaces/shop/services/main-{agent}-external"
        ingress = {"ingress": [{"hostname": f"{agent}.example.org"}]}
        managed.api.put(at, {**managed.api.objects[at], "status": {"loadBalancer": ingress}})
    expected = [f"{agent}.example.org" for agent in names]
    await managed.until(lambda: not unreachable() and hosts() == expected, "addresses")

    assert zone().external_ports == dict.fromkeys(names, 8200)
    managed.declare(listeners={})
    await managed.until(
        lambda: managed.kinds("services") == ["cart-clients", "main-agents"], "gone"
    )


async def test_the_budget_follows_the_rows(managed: Managed) -> None:
    assert "matchExpressions" not in managed.budget()["selector"]
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    managed.world.kill("agent-2")
    await managed.until(lambda: managed.may_be_away() == 0, "nobody may go")

    [chosen] = managed.budget()["selector"]["matchExpressions"]
    assert chosen["values"] == ["agent-1", "agent-2", "agent-3"]


async def test_the_budget_is_lowered_while_a_look_at_everything_takes_its_time(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    asked: list[str] = []
    of_name = managed.api.list

    async def no_answer(path: str, selector: str = "", name: str = "") -> AsyncIterator[Json]:
        if name:
            async for each in of_name(path, name=name):
                yield each
            return
        asked.append(path)
        await asyncio.Event().wait()
        yield {}

    monkeypatch.setattr(managed.api, "list", no_answer)
    await managed.until(lambda: managed.owned._queue.add("main") or asked, "a look that waits")
    managed.world.kill("agent-2")

    await managed.until(lambda: managed.may_be_away() == 0, "nobody may go")


async def test_a_lowered_budget_is_written_again_until_that_succeeds(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is slow, and what it wrote last has not been answered."""
    monkeypatch.setattr(budget, "AGAIN_S", 0.01)
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    apply, tried = managed.api.apply, 0

    async def unclear(path: str, body: Json) -> Json:
        nonlocal tried
        if "poddisruptionbudgets" not in path:
            return await apply(path, body)
        tried += 1
        if tried <= 3:
            raise ApiUnclear("no clear answer")
        return await apply(path, body)

    monkeypatch.setattr(managed.api, "apply", unclear)
    monkeypatch.setattr(managed.owned._queue, "add_in_turn", lambda name: None)
    managed.world.kill("agent-2")

    await managed.until(lambda: managed.may_be_away() == 0, "nobody may go")
    assert tried == 4


async def test_a_budget_that_is_lowered_beside_a_worker_changes_nothing_that_it_tells(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume that may not grow, and StatefulSets that were applied a moment ago."""
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    managed.api.refuse = lambda method, path: (
        403 if method == "PATCH" and path.endswith("claims/main-agent-1") else 0
    )
    apply, waits = managed.api.apply, asyncio.Event()

    async def slow(path: str, body: Json) -> Json:
        made = await apply(path, body)
        if path.endswith("statefulsets/main-agent-3"):
            await waits.wait()
        return made

    monkeypatch.setattr(managed.api, "apply", slow)
    managed.declare(image=NEW_IMAGE, storage={"size": "20Gi"})
    applier = managed.owned._seen["main"].applier
    await managed.until(lambda: len(applier.changed) == 2, "a worker in the middle of it")
    managed.world.kill("agent-2")
    await managed.until(lambda: managed.may_be_away() == 0, "nobody may go")

    assert applier.changed == ["main-agent-1", "main-agent-2"]
    assert applier.ungrown.keys() == {"main-agent-1"}
    waits.set()


async def test_why_no_pod_may_be_evicted_is_known_and_told_once_where_it_lasts(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reason() -> str:
        view = managed.see()
        return view.no_eviction.reason if view is not None and view.no_eviction is not None else ""

    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    await managed.until(lambda: not reason(), "a pod may be evicted")
    assert not managed.runner.told
    monkeypatch.setattr(owned_objects, "NO_EVICTION_TOLD_S", 0.2)

    managed.world.kill("agent-2")
    await managed.until(lambda: managed.runner.told, "an Event")
    assert reason() == "AgentsAway"
    managed.world.kill("agent-3")
    await managed.until(lambda: "agent-3" in str(managed.see()), "another sentence")
    [event] = managed.runner.told
    assert (event.reason, event.kind) == ("EvictionsRefused", "Warning")
    assert event.message.startswith(
        "no pod of an agent may be evicted: offline: agent-2; partitions"
    )

    for name in ("agent-2", "agent-3"):
        managed.world.connect(name)
    await managed.until(lambda: not reason(), "a pod may be evicted again")
    managed.world.kill("agent-3")
    await managed.until(lambda: len(managed.runner.told) == 2, "told again: it is another time")
    assert "agent-3" in managed.runner.told[1].message


async def test_the_end_of_a_container_gives_up_what_its_process_had_in_memory(
    managed: Managed,
) -> None:
    await managed.until(managed.is_ready, "ready")
    world = managed.world
    zone = msgspec.structs.replace(ZONE, replicas=3, storage=StorageKind.IN_MEMORY)
    world.master.set_zone(zone, world.now)
    await managed.until(lambda: world.status(zone).available, "placed")
    record = world.master.registration("agent-2")
    assert record is not None
    ended = {"terminated": {"exitCode": 137, "message": f"process {record.process}"}}
    at = f"{PODS}/main-agent-2-0"
    world.kill("agent-2")
    made = managed.api.objects[at]
    status = {**made["status"], "containerStatuses": [{"name": "agent", "state": ended}]}
    managed.api.put(at, {**made, "status": status})

    def voters() -> set[str]:
        return {node for row in world.rows(zone).values() for node in row.voter_nodes}

    await managed.until(lambda: "agent-2" not in voters(), "its votes are given up")


async def test_a_changed_template_replaces_pods_one_by_one(managed: Managed) -> None:
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "all is well")
    order = [each.name for each in managed.world.master.disruption().agents]
    managed.kubelet.restarted.clear()
    managed.declare(image=NEW_IMAGE)
    told_early: list[list[str]] = []

    def is_replaced() -> bool:
        view = managed.see()
        restarted = list(managed.kubelet.restarted)
        if view is not None and view.spec == managed.cluster.spec and not view.waits_for:
            told_early.extend([restarted] if len(restarted) < 3 else [])
        return len(restarted) == 3

    await managed.until(is_replaced, "all replaced")
    assert told_early == [], "told to be done before the last pod was replaced"
    await managed.until(lambda: managed.may_be_away() == 1, "all is well again")

    assert managed.kubelet.restarted[0] == order[0]
    assert [order[0]] in managed.runner.before, "the second one waited for the first"
    assert sorted(managed.kubelet.restarted) == sorted(order)
    assert managed.fewest_spare >= 0
    for path, made in managed.api.objects.items():
        if path.startswith(f"{PODS}/"):
            of = managed.api.objects[made["metadata"]["of"]]
            revision = made["metadata"]["labels"]["controller-revision-hash"]
            assert revision == of["status"]["updateRevision"]


async def test_a_bad_image_stops_after_the_first_and_goes_back(managed: Managed) -> None:
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "all is well")
    managed.declare(image=BAD_IMAGE)

    def is_told() -> bool:
        view = managed.see()
        return view is not None and any(each.reason == "ImagePullBackOff" for each in view.pods)

    await managed.until(is_told, "the pod that fails, told")
    for _ in range(50):
        managed.kubelet.step()
        await asyncio.sleep(0.004)
    assert len(managed.registered) == 2
    view = managed.see()
    assert view is not None
    [trouble] = view.pods
    assert view.waits_for == f"pod {trouble.name} was replaced and is not ready"

    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: len(managed.registered) == 3, "it is back")
    assert managed.fewest_spare >= 0


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_fewer_agents_are_drained_first_and_their_claims_stay(
    managed: Managed, policy: str
) -> None:
    managed.declare(policy, replicas=4)
    await managed.until(lambda: len(managed.registered) == 4, "four agents")
    managed.place_zone()
    held = {node.name: node.owners for node in managed.runner.status().nodes}
    victim = min(held, key=lambda name: (held[name], -int(name[6:])))
    managed.declare(policy, replicas=3)
    gone = f"{SETS}/main-{victim}"
    named_at_end: list[bool] = []

    def is_gone() -> bool:
        zone = managed.world.master.zones[ZONE.uid]
        if gone not in managed.api.objects:
            named_at_end.append(zone.names(victim))
        return gone not in managed.api.objects

    await managed.until(is_gone, f"{victim} gone")

    assert named_at_end == [False]
    assert len(managed.kinds("statefulsets")) == 3
    assert f"main-{victim}" in managed.kinds("persistentvolumeclaims")


async def test_at_zero_pods_end_and_later_find_their_data(managed: Managed) -> None:
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "all is well")
    managed.declare(replicas=0)
    await managed.until(lambda: not managed.kinds("pods"), "no pod")
    assert len(managed.kinds("persistentvolumeclaims")) == 3

    managed.declare(replicas=3)
    await managed.until(lambda: managed.may_be_away() == 1, "served again")
    assert not managed.world.master.zones[ZONE.uid].record.recovering


def _mistype_a_deletion(managed: Managed, agent: str) -> str:
    """Delete the claim of an agent whose pod holds it; return the claim's path."""
    at = f"/api/v1/namespaces/shop/persistentvolumeclaims/main-{agent}"
    claim = managed.api.objects[at]
    ends = {**claim["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    managed.api.put(at, {**claim, "metadata": ends})
    return at


async def test_a_claim_that_is_being_deleted_is_told_and_its_pod_is_not_ended(
    managed: Managed,
) -> None:
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "all is well")
    managed.kubelet.restarted.clear()
    at = _mistype_a_deletion(managed, "agent-2")

    def reasons() -> list[tuple[str, str]]:
        view = managed.see()
        return [(each.name, each.reason) for each in view.pods] if view is not None else []

    await managed.until(reasons, "told")
    assert reasons() == [("main-agent-2-0", "ClaimTerminating")]
    [event] = managed.runner.told
    assert (event.reason, event.kind) == ("ClaimTerminating", "Warning")
    assert "claim main-agent-2 is being deleted" in event.message

    def waits_for() -> str:
        view = managed.see()
        return view.waits_for if view is not None else ""

    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: "claim main-agent-2" in waits_for(), "the restart waits for it")
    assert "agent-2" not in managed.kubelet.restarted
    managed.declare(replicas=0)
    await managed.until(lambda: managed.kinds("pods") == ["main-agent-2-0"], "the others end")
    await managed.until(lambda: "claim main-agent-2" in waits_for(), "scaling to 0 waits for it")
    assert reasons() == [("main-agent-2-0", "ClaimTerminating")]

    del managed.api.objects[at]
    managed.api.revision += 1
    await managed.until(lambda: not managed.kinds("pods"), "no pod")
    assert not reasons()
    assert len(managed.runner.told) == 1


async def test_a_copy_of_a_claim_is_left_alone_where_claims_are_deleted(managed: Managed) -> None:
    await managed.until(managed.is_ready, "ready")
    claims = "/api/v1/namespaces/shop/persistentvolumeclaims"
    claim = managed.api.objects[f"{claims}/main-agent-3"]
    metadata = {**claim["metadata"], "name": "main-agent-3-copy", "uid": "of-the-copy"}
    managed.api.put(f"{claims}/main-agent-3-copy", {**claim, "metadata": metadata})
    began = len(managed.api.requests)

    await managed.owned.claims.set_owned(managed.cluster, True)

    assert managed.api.objects[f"{claims}/main-agent-3"]["metadata"]["ownerReferences"]
    assert "ownerReferences" not in managed.api.objects[f"{claims}/main-agent-3-copy"]["metadata"]
    assert ("PATCH", f"{claims}/main-agent-3-copy") not in managed.api.requests[began:]


async def test_what_somebody_deletes_or_edits_is_put_right(managed: Managed) -> None:
    service = "/api/v1/namespaces/shop/services/main-agents"
    del managed.api.objects[service]
    managed.api.revision += 1
    await managed.until(lambda: service in managed.api.objects, "the Service")
    edited = managed.api.objects[f"{SETS}/main-agent-1"]
    managed.api.put(f"{SETS}/main-agent-1", {**edited, "spec": {**edited["spec"], "replicas": 0}})
    await managed.until(
        lambda: managed.api.objects[f"{SETS}/main-agent-1"]["spec"]["replicas"] == 1, "one pod"
    )


async def test_at_rest_nothing_is_written(managed: Managed) -> None:
    await managed.until(managed.is_ready, "ready")
    await asyncio.sleep(0.1)
    revision = managed.api.revision
    await asyncio.sleep(0.2)

    assert managed.api.revision == revision


async def test_while_the_cluster_is_paused_only_the_budget_goes_on(managed: Managed) -> None:
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "all is well")
    managed.spec["image"] = NEW_IMAGE
    managed.cluster = managed_cluster(**managed.spec)
    before = managed.api.objects[f"{SETS}/main-agent-1"]["spec"]
    managed.pause = "paused"
    managed.world.kill("agent-3")
    await managed.until(lambda: managed.may_be_away() == 0, "the budget")

    assert managed.api.objects[f"{SETS}/main-agent-1"]["spec"] == before


async def test_a_cluster_that_is_managed_no_longer_is_let_go(managed: Managed) -> None:
    """A CRD of before allowed the change; pods go on, and nothing of theirs is applied any more."""
    external = {"external": {"addresses": ["10.0.0.7:7100"]}}
    spec = type(managed.cluster.spec).model_validate(external)
    managed.cluster = managed.cluster.model_copy(update={"spec": spec})
    assert managed.see() is None

    del managed.api.objects[f"{SETS}/main-agent-1"]
    managed.api.revision += 1
    requests = len(managed.api.requests)
    await asyncio.sleep(0.1)  # 20 looks

    assert managed.api.requests[requests:] == []
    managed.declare()
    again = f"{SETS}/main-agent-1"
    await managed.until(lambda: again in managed.api.objects, "made, once it is managed again")


@pytest.mark.parametrize("status", [403, 409, 500])
async def test_one_object_that_is_refused_does_not_hold_up_the_others(
    undeclared: Managed, status: int
) -> None:
    made = undeclared
    made.api.refuse = lambda method, path: (
        status if "persistentvolumeclaims/main-agent-1" in path and method != "GET" else 0
    )
    made.declare(replicas=3)
    await made.until(lambda: len(made.kinds("statefulsets")) == 3, "the others")
    await made.until(lambda: made.see() is not None, "a view")
    view = made.see()

    assert view is not None
    assert ("main-agent-1" in view.refused) == (status != 409), "a conflict is decided anew"
    assert updated(made)[0] is False
    assert made.kinds("persistentvolumeclaims") == ["main-agent-2", "main-agent-3"]
    await made.until(lambda: bool(made.owned.problems()) == (status != 403), "told, if retried")
    made.api.refuse = lambda method, path: 0
    made.owned._queue.add("main")
    await made.until(lambda: "main-agent-1" in made.kinds("persistentvolumeclaims"), "made")
    await made.until(lambda: not made.refused(), "nothing is refused")
    assert made.owned.problems() == []


@pytest.mark.parametrize("status", [404, 409])
async def test_agents_are_not_updated_while_a_stateful_set_changes_before_each_request(
    managed: Managed, status: int
) -> None:
    """Another writer touches it each time: nothing is refused, and nothing is updated."""
    await managed.until(lambda: updated(managed)[0], "all is well")
    managed.api.refuse = lambda method, path: status if method == "PATCH" and SETS in path else 0
    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: updated(managed)[0] is not None, "looked at")

    is_so, reason, message = updated(managed)
    assert (is_so, reason) == (False, "Replacing")
    assert message == (
        "an object has changed meanwhile and is looked at again:"
        f" PATCH {SETS}/main-agent-1: {status}"
    )
    managed.api.refuse = lambda method, path: 0
    managed.owned._queue.add("main")
    await managed.until(lambda: len(managed.kubelet.restarted) == 6, "all replaced")
    await managed.until(lambda: updated(managed)[0], "updated")


async def test_agents_are_not_updated_while_the_budget_changes_before_each_request(
    managed: Managed,
) -> None:
    """No StatefulSet changes any more, and two pods are still of the former template."""
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "one may go")
    managed.declare(image=NEW_IMAGE)
    await managed.until(lambda: len(managed.kubelet.restarted) == 4, "the first is replaced")
    managed.api.refuse = lambda method, path: 409 if "disruptionbudgets/" in path else 0
    managed.world.kill("agent-3")
    await managed.until(managed.owned.problems, "a conflict")

    is_so, reason, message = updated(managed)
    assert (is_so, reason) == (False, "Replacing"), message


async def test_a_budget_without_a_clear_answer_does_not_hold_up_the_others(
    undeclared: Managed,
) -> None:
    made = undeclared
    made.api.refuse = lambda method, path: 500 if "disruptionbudgets/" in path else 0
    made.declare(replicas=3)
    await made.until(lambda: len(made.registered) == 3, "three agents")

    view = made.see()
    assert view is not None
    assert view.refused.endswith("poddisruptionbudgets/main-agents: 500")
    [problem] = made.owned.problems()
    assert problem == f"storagecluster shop/main: its objects: {view.refused}"


@pytest.mark.parametrize("status", [403, 500])
async def test_a_deletion_that_is_refused_is_told_and_holds_up_nothing(
    managed: Managed, status: int
) -> None:
    former = managed.api.objects["/api/v1/namespaces/shop/services/main-agents"]
    metadata = {**former["metadata"], "name": "former-clients"}
    managed.api.put("/api/v1/namespaces/shop/services/former-clients", {"metadata": metadata})
    managed.api.refuse = lambda method, path: status if method == "DELETE" else 0
    managed.declare(replicas=4, image=NEW_IMAGE)

    await managed.until(lambda: len(managed.registered) == 4, "one more")
    view = managed.see()
    assert view is not None
    refused = "DELETE /api/v1/namespaces/shop/services/former-clients"
    assert view.refused == f"{refused}: {status}"
    assert len(managed.kubelet.restarted) == 4, "no pod is replaced meanwhile"
    managed.api.refuse = lambda method, path: status if method == "DELETE" and PODS in path else 0
    managed.owned._queue.add("main")
    await managed.until(lambda: f"DELETE {PODS}/" in managed.refused(), "told of the pod")
    managed.api.refuse = lambda method, path: 0
    managed.owned._queue.add("main")
    await managed.until(lambda: len(managed.kubelet.restarted) == 7, "all replaced")
    assert "former-clients" not in managed.kinds("services")
