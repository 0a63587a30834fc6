"""A namespace was lost with all but the Secret; API server and agents are in memory."""

from typing import Any

import msgspec
import pytest

from quorate_loopback.memory_api import MemoryApi
from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import NAMES
from quorate_loopback.waiting import until, until_quiet
from quorate_operator import names
from quorate_operator.kube.api import path_of
from quorate_operator.metastores.kubernetes import KubernetesMetastore

COUNTER = path_of("default", "masterterms", "main")


def is_recovering(declared: Namespace) -> bool:
    annotations = declared.api.objects[COUNTER]["metadata"].get("annotations", {})
    return names.ANNOTATION_RECOVERING in annotations


def status_of(declared: Namespace, zone: str) -> Any:
    return declared.api.objects[declared.path("Zone", zone)].get("status", {})


def told_of(declared: Namespace, zone: str) -> str:
    """What the Zone says of its availability."""
    told = status_of(declared, zone).get("conditions", [])
    conditions = {each["type"]: each["message"] for each in told}
    return str(conditions.get("Available", ""))


async def lose_all_but_the_secret(declared: Namespace, zone: str) -> None:
    """The agents keep what they have of the zone, and nobody leads them."""
    record = declared.led(zone)
    assert record is not None
    await declared.controller.close()
    for agent in declared.world.agents.values():
        agent.zone = record
    for path in [each for each in declared.api.objects if "/secrets/" not in each]:
        del declared.api.objects[path]
    declared.declare("StorageCluster", "main", external={"addresses": declared.addresses()})


async def test_a_zone_that_is_declared_again_has_the_data_that_agents_have(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await lose_all_but_the_secret(declared, "first")
    declared.zone("first", uid="another", replicas=2)

    await declared.restart()

    await declared.until_available("first")
    assert status_of(declared, "first")["zoneId"] == "uid-of-first"
    assert all("/uid-of-first-" in path for path in declared.tables())
    found = declared.led("first")
    assert found is not None
    assert found.replicas == 2, "what else is declared counts"
    await until(lambda: not is_recovering(declared), "an end of it")


async def test_data_of_a_zone_that_is_declared_otherwise_is_kept_as_it_is(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await lose_all_but_the_secret(declared, "first")
    declared.zone("first", uid="another", partitions=32)

    await declared.restart()

    await until(lambda: "data of an earlier zone" in str(declared.api.objects), "refused")
    assert declared.conditions("first")["Accepted"] == "False"
    assert all("/uid-of-first-" in path for path in declared.tables())


async def test_a_new_zone_waits_for_an_agent_that_may_have_data_of_its_name(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await lose_all_but_the_secret(declared, "first")
    away = declared.world.agents[NAMES[2]]
    await away.die()
    declared.zone("first", uid="another")  # it may have data of this name, too
    declared.zone("second")

    await declared.restart()

    for zone in ("first", "second"):
        await until(lambda zone=zone: away.address in told_of(declared, zone), "told")
    await until(lambda: declared.led("first"), "data of a zone that the others have")
    assert is_recovering(declared)
    assert not status_of(declared, "first").get("zoneId")
    assert all("/uid-of-first-" in path for path in declared.tables())
    await declared.restart()  # the next master goes on with it
    await until(lambda: f"not reached yet: {away.address}" in told_of(declared, "second"), "told")
    assert is_recovering(declared)

    port = int(away.address.rpartition(":")[2])
    again = await declared.world.add_agent(NAMES[2], port=port)
    again.zone, again.rows = away.zone, away.rows
    again._check = lambda table: None
    await declared.until_available("second")
    await until(lambda: status_of(declared, "first").get("zoneId") == "uid-of-first", "its data")
    assert not is_recovering(declared)


async def test_a_zone_whose_rows_nobody_can_rebuild_holds_up_no_new_one(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await lose_all_but_the_secret(declared, "first")
    for name in NAMES[1:]:  # whose volumes are gone
        agent = declared.world.agents[name]
        agent.zone = None
        agent.hello = msgspec.structs.replace(agent.hello, store=f"new-store-of-{name}")
    declared.zone("first", uid="another")
    declared.zone("second")

    await declared.restart()

    await declared.until_available("second")
    assert not is_recovering(declared)
    await until(lambda: declared.conditions("first").get("OwnershipDamaged") == "True", "told")
    assert "first" not in declared.retained()


async def test_where_the_secret_was_made_beforehand_agents_are_waited_for_that_are_declared(
    declared: Namespace,
) -> None:
    """Nobody can tell such a cluster from one of which everything was lost."""
    away = declared.world.agents[NAMES[2]]
    await away.die()
    declared.start()
    declared.zone("first", replicas=2)
    await until(lambda: f"not reached yet: {away.address}" in told_of(declared, "first"), "told")
    await until(lambda: len(declared.tables("storagenodes")) == 2, "the others")
    assert declared.tables() == []

    here = [each for each in declared.addresses() if each != away.address]
    declared.declare("StorageCluster", "main", external={"addresses": here})

    await until(lambda: declared.conditions("first").get("Available") == "True", "served")
    assert not is_recovering(declared)


async def test_a_few_agents_with_data_are_not_passed_over_because_they_come_late(
    declared: Namespace,
) -> None:
    """They open their databases first; the others have new volumes."""
    declared.start()
    declared.zone("first", replicas=1)
    await declared.until_available("first")
    await lose_all_but_the_secret(declared, "first")
    late = declared.world.agents[NAMES[2]]
    await late.die()
    for name in NAMES[:2]:
        agent = declared.world.agents[name]
        agent.zone, agent.rows = None, {}
        agent.hello = msgspec.structs.replace(agent.hello, store=f"new-store-of-{name}")
    declared.zone("first", uid="another", replicas=1)

    await declared.restart()
    await until(lambda: f"not reached yet: {late.address}" in told_of(declared, "first"), "told")

    port = int(late.address.rpartition(":")[2])
    again = await declared.world.add_agent(NAMES[2], port=port)
    again.zone, again.rows = late.zone, late.rows
    again._check = lambda table: None
    await until(lambda: not is_recovering(declared), "an end of it")
    assert declared.led("first") is not None
    assert not [path for path in declared.tables() if "/another-" in path]


async def test_of_two_zones_of_one_name_a_person_says_which_is_meant(declared: Namespace) -> None:
    """An agent was away when the first was deleted and made again."""
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    record = declared.led("first")
    assert record is not None
    await lose_all_but_the_secret(declared, "first")
    stale = msgspec.structs.replace(record, uid="a-stale")
    declared.world.agents[NAMES[0]].older = (stale,)
    declared.zone("first", uid="another")

    await declared.restart()

    await until(lambda: "agents keep data of 2 zones" in str(declared.api.objects), "refused")
    status = status_of(declared, "first")
    [accepted] = [each for each in status["conditions"] if each["type"] == "Accepted"]
    assert accepted["reason"] == "KeptDataAmbiguous"
    assert f"a-stale ({NAMES[0]}); uid-of-first ({', '.join(NAMES)})" in accepted["message"]
    assert not status.get("zoneId")

    chosen = {names.ANNOTATION_ZONE_ID: "uid-of-first"}
    declared.zone("first", chosen, uid="another")

    await declared.until_available("first")
    assert status_of(declared, "first")["zoneId"] == "uid-of-first"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_data_that_a_person_chose_goes_with_the_zone_and_no_other(
    declared: Namespace, is_restarted: bool
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    record = declared.led("first")
    assert record is not None
    await lose_all_but_the_secret(declared, "first")
    stale = msgspec.structs.replace(record, uid="a-stale")
    declared.world.agents[NAMES[0]].older = (stale,)
    chosen = {names.ANNOTATION_ZONE_ID: "uid-of-first"}
    declared.zone("first", chosen, uid="another", deletionPolicy="Delete")
    await declared.restart()
    await declared.until_available("first")

    if is_restarted:
        await declared.restart()
        await until(lambda: declared.led("first"), "led")
    await declared.delete("first")

    # Its record waits for agents that the last master has not seen yet.
    await until(lambda: declared.led("first") is None, "gone")
    await until(lambda: "/uid-of-first-" not in str(declared.tables()), "its objects gone")
    kept = declared.controller._led["main"].runner.known_zone("a-stale")
    assert kept is not None
    assert not kept.deleting


async def test_data_of_a_zone_without_a_record_is_named_and_a_recovery_that_is_asked_for_finds_it(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    declared.zone("second")
    await declared.until_available("first")
    await declared.until_available("second")
    record = declared.led("first")
    assert record is not None
    await declared.controller.close()
    for agent in declared.world.agents.values():
        agent.zone, agent.kept = record, (record.uid,)
    for path in [each for each in declared.api.objects if "first" in each]:
        del declared.api.objects[path]

    await declared.restart()

    def unrecorded() -> str | None:
        return declared.conditions("main", "StorageCluster").get("ZonesUnrecorded")

    await until(lambda: unrecorded() == "True", "told")
    assert f"{record.uid} ({', '.join(NAMES)})" in str(declared.api.objects)

    counter = declared.api.objects[COUNTER]
    counter["metadata"].setdefault("annotations", {})[names.ANNOTATION_RECOVERING] = "true"
    await declared.restart()
    await until(lambda: declared.retained() == ["first"], "named as kept", 20)
    assert unrecorded() is None
    assert not is_recovering(declared)

    declared.zone("first", uid="another", deletionPolicy="Delete")
    await declared.until_available("first")
    assert status_of(declared, "first")["zoneId"] == record.uid
    assert declared.conditions("second")["Available"] == "True"
    await declared.delete("first")
    assert not any(f"/{record.uid}-" in path for path in declared.tables())


async def test_agents_that_may_have_had_a_master_before_are_all_waited_for(
    declared: Namespace,
) -> None:
    """They have nothing, which a master in a later number than the first cannot take for new."""
    away = declared.world.agents[NAMES[2]]
    await away.die()
    counter = KubernetesMetastore(declared.api.as_api, "default", "main")
    assert await counter.acquire_master_term() == 1
    assert counter.recovering
    declared.start()
    declared.zone("first", replicas=2)

    await until(lambda: f"not reached yet: {away.address}" in told_of(declared, "first"), "told")
    await until(lambda: len(declared.tables("storagenodes")) == 2, "the others")
    await until_quiet(lambda: len(declared.api.requests))
    assert declared.tables() == []
    assert is_recovering(declared)


@pytest.mark.parametrize("told_term", [0, 5])
async def test_what_is_lost_is_remembered_until_agents_have_told(told_term: int) -> None:
    api = MemoryApi()

    async def next_one(is_new: bool = False) -> KubernetesMetastore:
        metastore = KubernetesMetastore(api.as_api, "default", "main", told_term)
        if is_new:
            metastore.note_new()
        await metastore.acquire_master_term()
        return metastore

    assert not (await next_one(is_new=True)).recovering, "its secret was made just now"
    del api.objects[COUNTER]
    is_lost = told_term == 0  # else the StorageCluster was led in this namespace
    first = await next_one()
    assert first.recovering == is_lost
    assert await first.acquire_master_term(above=70) == 71
    second = await next_one()
    assert second.recovering == is_lost

    await second.end_recovery()

    assert not second.recovering
    assert not (await next_one()).recovering
    assert api.objects[COUNTER]["spec"]["term"] == 73, "counted on"
