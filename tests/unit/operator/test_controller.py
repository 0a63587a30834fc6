"""What a master on Kubernetes makes of declared objects; API server and agents are in memory."""

import asyncio
from typing import Any

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import NAMES
from quorate_loopback.waiting import until, until_quiet
from quorate_operator import names
from quorate_operator.kube.api import path_of

Json = dict[str, Any]
PAUSED = {names.ANNOTATION_PAUSED: "true"}


async def test_a_zone_is_led_and_its_status_told(declared: Namespace) -> None:
    declared.start()
    declared.zone("first")

    await declared.until_available("first")

    assert declared.conditions("main", "StorageCluster") == {
        "Ready": "True",
        "Blocked": "False",
    }
    status = declared.api.objects[declared.path("Zone", "first")]["status"]
    assert status["observedGeneration"] == 1


async def test_the_cluster_of_each_zone_is_known_to_those_who_make_its_service(
    declared: Namespace,
) -> None:
    known = declared.controller._owned._declared
    declared.start()
    declared.zone("first")
    declared.zone("elsewhere", clusterRef={"name": "nowhere"})
    assert (known.cluster_of("first"), known.cluster_of("elsewhere")) == ("main", "")

    await declared.until_available("first")
    await declared.delete("first")

    assert known.cluster_of("first") == ""


async def test_a_stored_cluster_that_is_managed_no_longer_dials_what_it_names(
    declared: Namespace,
) -> None:
    """Today's CRD refuses this change; that of an earlier version allowed it."""
    storage = {"size": "1Gi"}
    declared.declare(
        "StorageCluster", "main", managed={"replicas": 1, "image": "i", "storage": storage}
    )
    declared.start()
    path = declared.path("StorageCluster", "main")

    def told() -> Json:
        return dict(declared.api.objects[path].get("status", {}))

    await until(lambda: told().get("replicas") == 1, "managed")

    declared.declare("StorageCluster", "main", external={"addresses": declared.addresses()})
    await until(lambda: told().get("addresses") == declared.addresses(), "its own addresses")

    assert not {"replicas", "selector"} & told().keys()
    assert "AgentsUpdated" not in declared.conditions("main", "StorageCluster")


async def test_the_first_status_of_a_changed_zone_does_not_say_that_the_change_is_done(
    declared: Namespace,
) -> None:
    """`kubectl wait` takes the first status with the new generation for the answer."""
    declared.start()
    declared.zone("first", replicas=2)
    await declared.until_available("first")
    path = declared.path("Zone", "first")
    declared.zone("first", replicas=5)  # of three agents
    await until(
        lambda: declared.api.objects[path]["status"]["observedGeneration"] == 2,
        "the new generation",
    )

    status = declared.api.objects[path]["status"]
    assert declared.conditions("first")["FullyReplicated"] == "False"
    assert status["phase"] == "Degraded"


async def test_at_rest_nothing_is_asked_of_the_api_server_and_no_zone_is_looked_at(
    declared: Namespace,
) -> None:
    declared.start()
    for number in range(20):
        declared.zone(f"zone-{number}")
    await declared.until_available(*(f"zone-{number}" for number in range(20)))

    await until_quiet(lambda: (len(declared.api.requests), declared.looked_at()["zone"]))


async def test_what_changes_in_one_zone_is_told_of_that_zone_only(
    declared: Namespace,
) -> None:
    declared.start()
    for name in ("first", "second"):
        declared.zone(name)
    await declared.until_available("first", "second")
    await asyncio.sleep(0.2)
    declared.api.requests.clear()

    declared.zone("first", replicas=2)
    await until(lambda: declared.api.writes("zones/first") != [], "told")
    await asyncio.sleep(0.2)

    assert declared.api.writes("zones/second") == []


async def test_the_next_master_tells_nothing_that_the_objects_say_already(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    before = declared.api.objects[declared.path("Zone", "first")]["status"]
    declared.api.requests.clear()

    await declared.restart()
    await until(lambda: declared.led("first") is not None, "led")
    await asyncio.sleep(0.3)
    await declared.until_available("first")

    told = declared.api.objects[declared.path("Zone", "first")]["status"]
    accepted = [[c for c in s["conditions"] if c["type"] == "Accepted"] for s in (before, told)]
    assert accepted[0] == accepted[1]  # it was never said that its cluster is not there


async def test_a_status_that_cannot_be_told_is_tried_again_and_holds_up_no_other(
    declared: Namespace,
) -> None:
    refused = declared.path("Zone", "first")
    declared.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", refused) else 0
    declared.start()
    declared.zone("first")
    declared.zone("second")

    await declared.until_available("second")
    [family] = declared.metrics.reconciles.collect()
    failed = [e.value for e in family.samples if e.labels.get("result") == "failed"]
    assert failed[0] >= 1
    assert declared.failures == []

    declared.api.refuse = lambda method, path: 0
    await declared.until_available("first")


@pytest.mark.parametrize(
    ("counted", "of_before", "told", "led_in"),
    [(5, 70, 10**6, 6), (None, 41, 10**6, 42), (None, None, 41, 42)],
)
async def test_terms_go_on_above_the_counter_then_the_one_of_before_then_what_was_told(
    declared: Namespace, counted: int | None, of_before: int | None, told: int, led_in: int
) -> None:
    """A term patched into the status must not lift terms beyond what agents believe."""
    cluster = declared.path("StorageCluster", "main")
    counter = path_of("default", "masterterms", "main")
    status = {"master": {"identity": "before", "term": told}}
    declared.api.put(cluster, {**declared.api.objects[cluster], "status": status})
    if counted is not None:
        declared.api.put(counter, {"metadata": {"name": "main"}, "spec": {"term": counted}})
    if of_before is not None:
        name = names.MASTER_TERM_OF_BEFORE
        shared = {"metadata": {"name": name}, "data": {"term": str(of_before)}}
        declared.api.put(f"/api/v1/namespaces/default/configmaps/{name}", shared)

    await declared.restart()
    declared.zone("first")
    await declared.until_available("first")

    assert declared.controller._led["main"].runner.status().master_term == led_in
    assert declared.api.objects[cluster]["status"]["master"]["term"] == led_in
    assert declared.api.objects[counter]["spec"]["term"] == led_in
    assert declared.api.writes("configmaps") == []

    await declared.restart()
    await until(lambda: declared.api.objects[counter]["spec"]["term"] == led_in + 1, "counted on")


async def test_a_counter_of_before_that_cannot_be_read_is_not_passed_over(
    declared: Namespace,
) -> None:
    """Below it agents would refuse the master."""
    declared.api.refuse = lambda method, path: 403 if "/configmaps/" in path else 0
    declared.start()

    await until(lambda: "403" in "".join(declared.controller.problems()), "said")
    assert declared.tables("masterterms") == []


async def test_events_that_are_refused_are_not_tried_with_every_look(
    declared: Namespace,
) -> None:
    declared.api.refuse = lambda method, path: 403 if path.endswith("/events") else 0
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await until(lambda: declared.api.writes("/events") != [], "tried")
    declared.api.requests.clear()

    await asyncio.sleep(0.6)  # 30 looks

    assert len(declared.api.writes("/events")) <= 3


async def test_what_is_to_be_told_and_is_refused_makes_the_operator_not_ready(
    declared: Namespace,
) -> None:
    refused = declared.path("Zone", "first")
    declared.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", refused) else 0
    declared.start()
    declared.zone("first")

    await until(lambda: declared.controller.problems() != [], "said")
    assert declared.controller.problems()[0].startswith(f"zone default/first: PATCH {refused}: 403")
    declared.api.refuse = lambda method, path: 0
    await declared.until_available("first")

    assert declared.controller.problems() == []


# --- pause ------------------------------------------------------------------------------------


async def test_what_is_declared_of_a_paused_zone_waits_and_failover_goes_on(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")

    declared.zone("first", PAUSED)
    await until(lambda: declared.conditions("first").get("Paused") == "True", "paused")
    declared.zone("first", PAUSED, replicas=2)
    await declared.world.agents[NAMES[0]].die()
    rows = declared.world.agents[NAMES[1]].rows
    await until(lambda: all(r.replicas[0] != NAMES[0] for r in rows.values()), "failover")
    led = declared.led("first")
    assert led is not None
    assert led.replicas == 3
    status = declared.api.objects[declared.path("Zone", "first")]["status"]
    assert status["observedGeneration"] == 1

    declared.zone("first", replicas=2)

    await until(lambda: getattr(declared.led("first"), "replicas", 0) == 2, "acted upon")
    await until(lambda: "Paused" not in declared.conditions("first"), "paused no more")


async def test_a_zone_that_is_new_and_paused_is_not_created(declared: Namespace) -> None:
    declared.start()
    declared.zone("first", PAUSED)

    # Not yet so while agents have not told which zones they have.
    await until(lambda: declared.conditions("first").get("Accepted") == "False", "refused")
    assert declared.conditions("first")["Paused"] == "True"
    assert declared.led("first") is None

    declared.zone("first")
    await declared.until_available("first")


async def test_a_paused_zone_is_not_deleted(declared: Namespace) -> None:
    declared.start()
    declared.zone("first", PAUSED)
    declared.zone("first")
    await declared.until_available("first")
    declared.zone("first", PAUSED)
    body = declared.deleting("first")

    releasing = asyncio.create_task(declared.controller.zone_released(body))
    await until(lambda: declared.conditions("first").get("Paused") == "True", "paused")
    led = declared.led("first")
    assert led is not None
    assert not led.deleting

    unpaused = {**body, "metadata": {**body["metadata"], "annotations": {}}}
    declared.controller.zone_seen(declared.api.put(declared.path("Zone", "first"), unpaused))
    async with asyncio.timeout(10):
        await releasing


async def test_addresses_of_a_paused_cluster_stay_in_force_also_under_the_next_master(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    everyone = declared.addresses()

    declared.declare("StorageCluster", "main", PAUSED, addresses=everyone[:2])
    await until(lambda: "Paused" in declared.conditions("main", "StorageCluster"), "paused")
    assert declared.conditions("first").get("FullyReplicated") == "True"
    await declared.restart()
    await until(lambda: declared.led("first") is not None, "led")
    runner = declared.controller._led["main"].runner
    await until(lambda: len(runner.status().nodes) == 3 and not runner.unreached(), "all are here")

    assert list(runner.dialing.declared) == everyone
    assert not any(node.state == "Draining" for node in runner.status().nodes)

    declared.declare("StorageCluster", "main", addresses=everyone[:2])
    await until(lambda: list(runner.dialing.declared) == everyone[:2], "acted upon")
