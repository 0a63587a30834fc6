"""Clusters of the same name in two namespaces under one operator; API server and agents are in
memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import NAMES, World
from quorate_loopback.waiting import until
from quorate_operator.declared import served_namespaces
from quorate_operator.declared.controller import Controller
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.served_namespaces import ServedNamespaces
from quorate_operator.kube.api import path_of
from quorate_operator.kube.scope import Scope

ALL = Scope((), "office")
LISTED = Scope(("one", "two"), "office")


class Office:
    """Namespaces `one` and `two`, each with its cluster `main`, agents and Zone `first`."""

    def __init__(self, world: World, other: World) -> None:
        self.one = Namespace(world, "one")
        self.api = self.one.api
        self.two = Namespace(other, "two", self.api)
        self.both = (self.one, self.two)
        self.made: list[str] = []
        self.failures: list[str] = []
        for each in self.both:
            each.zone("first")
        self.served: ServedNamespaces

    def start(self, scope: Scope) -> None:
        """Lead, and show what there is as the watches do."""
        api, metrics = self.api.as_api, self.one.metrics
        self.served = ServedNamespaces(scope, self._make, api, metrics, self.failures.append)
        self.served.start()
        for each in self.both:
            self.served.zone_seen(self.api.objects[each.path("Zone", "first")])

    def _make(self, namespace: str) -> Controller:
        self.made.append(namespace)
        [each] = [each for each in self.both if each.name == namespace]
        each.controller = each._make()
        return each.controller


@pytest.fixture
async def office(
    world: World, world_elsewhere: World, declared: Namespace
) -> AsyncIterator[Office]:
    """`declared`: for its settings; it is not started."""
    office = Office(world, world_elsewhere)
    yield office
    await office.served.close()


@pytest.mark.parametrize("scope", [ALL, LISTED], ids=["all", "listed"])
async def test_each_has_its_own_cluster_agents_rows_and_events(
    office: Office, scope: Scope
) -> None:
    office.start(scope)
    for each in office.both:
        await each.until_available("first")

    led = [(each.namespace, each.cluster) for each in office.served.clusters()]
    assert led == [("one", "main"), ("two", "main")]
    assert sorted(office.made) == ["one", "two"]
    assert office.api.requests.count(("GET", path_of("", "storageclusters"))) == (scope is ALL)
    await office.one.world.agents[NAMES[0]].die()
    rows = office.one.world.agents[NAMES[1]].rows
    await until(lambda: all(row.replicas[0] != NAMES[0] for row in rows.values()), "failover")
    await until(lambda: office.one.conditions("first")["FullyReplicated"] == "False", "told")
    assert office.two.conditions("first")["FullyReplicated"] == "True"
    events = [path for path in office.one.tables("events") if "/namespaces/two/" in path]
    told = {office.api.objects[path]["reason"] for path in events}
    assert "NodeJoined" in told
    assert "NodeLeft" not in told


async def test_what_is_refused_in_one_namespace_blocks_it_alone(office: Office) -> None:
    away = [f"/namespaces/one/{plural}" for plural in ("partitiontables", "zones", "events")]
    office.api.refuse = lambda method, path: (
        403 if method != "GET" and any(each in path for each in away) else 0
    )
    office.start(ALL)

    await office.two.until_available("first")
    await until(lambda: "cluster one/main: blocked: " in ";".join(office.served.problems()), "said")
    assert any(each.startswith("zone one/first: ") for each in office.served.problems())
    assert "two/" not in ";".join(office.served.problems())

    office.api.refuse = lambda method, path: 0
    await office.one.until_available("first")
    await until(lambda: office.served.problems() == [], "all is written")


async def test_a_namespace_of_a_list_that_cannot_be_listed_is_named_and_asked_again(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_namespaces, "RELIST_S", 0.02)
    monkeypatch.setattr(served_namespaces, "RELIST_MAX_S", 0.02)
    refused = path_of("one", "storageclusters")
    office.api.refuse = lambda method, path: 403 if (method, path) == ("GET", refused) else 0
    office.start(LISTED)

    await office.two.until_available("first")
    assert office.served.problems() == [
        f"namespace one: clusters cannot be listed: GET {refused}: 403"
    ]

    office.api.refuse = lambda method, path: 0
    await office.one.until_available("first")
    assert office.served.problems() == []


async def test_the_controller_of_a_namespace_without_objects_ends_and_one_begins_anew(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_namespaces, "SWEEP_S", 0.02)
    office.start(ALL)
    for each in office.both:
        await each.until_available("first")
    before = asyncio.all_tasks()
    zone = office.api.objects.pop(office.one.path("Zone", "first"))
    cluster = office.api.objects.pop(office.one.path("StorageCluster", "main"))

    office.served.zone_gone(zone)
    office.served.cluster_gone(cluster)

    await until(lambda: "one" not in office.served._controllers, "swept")
    await until(lambda: len(asyncio.all_tasks()) < len(before) - 8, "its tasks have ended")
    assert [each.namespace for each in office.served.clusters()] == ["two"]

    office.served.cluster_seen(office.api.put(office.one.path("StorageCluster", "main"), cluster))
    office.served.zone_seen(office.api.put(office.one.path("Zone", "first"), zone))
    await office.one.until_available("first")


@pytest.mark.parametrize("scope", [ALL, LISTED], ids=["all", "listed"])
async def test_what_is_gone_without_an_event_is_found(
    office: Office, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a gap of the watch: kopf then tells only of what is there."""
    monkeypatch.setattr(served_namespaces, "COMPARE_S", 0.05)
    office.start(scope)
    one = office.one
    one.declare("ScheduledDataValidation", "nightly", schedule="0 3 * * *")
    schedule = office.api.objects[one.path("ScheduledDataValidation", "nightly")]
    office.served.run_seen(Kind.SCHEDULE, schedule)
    for each in office.both:
        await each.until_available("first")
    zones = path_of(scope.place_of("one"), "zones")
    office.api.refuse = lambda method, path: 403 if (method, path) == ("GET", zones) else 0
    for kind, name in (
        ("Zone", "first"),
        ("StorageCluster", "main"),
        ("ScheduledDataValidation", "nightly"),
    ):
        del office.api.objects[one.path(kind, name)]

    await until(lambda: not one.controller._clusters, "the cluster is gone")
    await until(lambda: not one.controller._runs, "the schedule is gone")
    assert one.controller._zones, "these cannot be listed"

    office.api.refuse = lambda method, path: 0
    await until(lambda: not one.controller._zones, "the zone is gone")
    assert list(office.two.controller._zones) == ["first"]
    assert list(office.two.controller._clusters) == ["main"]
    assert office.failures == []


async def test_what_is_created_again_without_an_event_is_not_taken_for_what_was_known(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_namespaces, "COMPARE_S", 0.05)
    office.start(ALL)
    await office.one.until_available("first")
    path = office.one.path("Zone", "first")
    body = office.api.objects[path]
    office.api.put(path, {**body, "metadata": {**body["metadata"], "uid": "another"}})

    def known() -> list[str]:
        return [zone.uid for zone in office.one.controller._zones.values()]

    await until(lambda: "uid-of-first" not in known(), "the earlier one is gone")


async def test_a_defect_while_clusters_are_listed_is_told(office: Office) -> None:
    """Else no controller would ever begin, and the process would look healthy."""

    def meets_defect(method: str, path: str) -> int:
        raise ZeroDivisionError("nobody foresaw this")

    office.api.refuse = meets_defect
    office.start(ALL)

    await until(lambda: office.failures, "told")
    assert office.failures == ["stopped by a defect: ZeroDivisionError: nobody foresaw this"]
