"""A namespace was lost with all but the Secret; API server and agents are in memory."""

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


def told_of(declared: Namespace, zone: str) -> str:
    """What the Zone says of its availability."""
    status = declared.api.objects[declared.path("Zone", zone)].get("status", {})
    conditions = {each["type"]: each["message"] for each in status.get("conditions", [])}
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
    status = declared.api.objects[declared.path("Zone", "first")]["status"]
    assert status["zoneId"] == "uid-of-first"
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
    declared.zone("second")

    await declared.restart()

    await until(lambda: f"not reached yet: {away.address}" in told_of(declared, "second"), "told")
    assert is_recovering(declared)
    assert all("/uid-of-first-" in path for path in declared.tables())
    await declared.restart()  # the next master goes on with it
    await until(lambda: f"not reached yet: {away.address}" in told_of(declared, "second"), "told")
    assert is_recovering(declared)

    port = int(away.address.rpartition(":")[2])
    again = await declared.world.add_agent(NAMES[2], port=port)
    again.zone, again.rows = away.zone, away.rows
    again._check = lambda table: None
    await declared.until_available("second")
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


async def test_a_cluster_whose_agents_have_nothing_is_new_also_while_one_is_away(
    declared: Namespace,
) -> None:
    """Its Secret may have been made beforehand, by who starts the agents."""
    await declared.world.agents[NAMES[2]].die()
    declared.start()
    declared.zone("first", replicas=2)

    await until(lambda: declared.conditions("first").get("Available") == "True", "served")
    assert not is_recovering(declared)


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
