"""What both operators do with a cluster that they lead: a real runner, agents that are scripted."""

from typing import Any

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster, StorageClusterStatus
from quorate.wire.zone import Zone, ZoneStatus
from quorate_loopback.runner_world import NAMES, ZONE, World, is_available
from quorate_loopback.waiting import until
from quorate_operator.declared.led_cluster import Change, LedCluster, LedClusters
from quorate_operator.owned.agent_names import Agents
from quorate_operator.owned.owned_objects import ManagedView
from quorate_owned.facts import managed_cluster

NOTHING = Change(cluster=False, zones=[], all_zones=False)


def cluster(*addresses: str) -> StorageCluster:
    metadata = {"name": "main", "uid": "uid-of-main", "generation": 1}
    made = {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": metadata}
    return StorageCluster.parse({**made, "spec": {"addresses": list(addresses)}})


def zone(
    uid: str = ZONE.uid,
    name: str = ZONE.name,
    deleting: bool = False,
    generation: int = 1,
    **spec: Any,
) -> Zone:
    metadata: dict[str, Any] = {"name": name, "uid": uid, "generation": generation}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    whole = {"clusterRef": {"name": "main"}, "partitions": ZONE.partitions, **spec}
    made = {"apiVersion": API_VERSION, "kind": "Zone", "metadata": metadata}
    return Zone.parse({**made, "spec": whole})


async def begun(world: World) -> LedCluster:
    """About to lead, with one zone."""
    addresses = [agent.address for agent in world.agents.values()]
    return LedCluster(cluster(*addresses), await world.lead())


async def leading(world: World) -> LedCluster:
    """Leads, and its zone is available."""
    led = await begun(world)
    await until(lambda: is_available(led.runner), "an available zone")
    return led


def told(status: ZoneStatus) -> dict[str, str]:
    return {each.type: each.status for each in status.conditions}


def known(led: LedCluster, uid: str = ZONE.uid) -> ZoneRecord:
    record = led.runner.known_zone(uid)
    assert record is not None
    return record


async def test_a_zone_is_declared_to_a_master_that_leads(world: World) -> None:
    """Which data it has, and so its id, only the metastore tells."""
    led = await begun(world)
    assert not led.runner.is_leading
    led.declare_zone(zone("uid-2", "carts"), "uid-2", "")
    await until(lambda: is_available(led.runner), "an available zone")
    assert led.runner.known_zone("uid-2") is None

    acceptance = led.declare_zone(zone("uid-2", "carts"), "uid-2", "")

    assert acceptance.reason == "Accepted"
    assert known(led, "uid-2").name == "carts"


async def test_a_zone_is_led_under_the_id_of_its_data(world: World) -> None:
    led = await leading(world)

    led.declare_zone(zone("made-again", replicas=2), ZONE.uid, "")

    assert (known(led).uid, known(led).replicas) == (ZONE.uid, 2)
    assert led.runner.known_zone("made-again") is None


@pytest.mark.parametrize(
    ("declared", "pause", "reason", "is_its"),
    [
        (zone(replicas=2), "it is paused", "Accepted", True),
        (zone(deleting=True), "", "Accepted", False),  # `is_erased` decides
        (zone("made-again", partitions=32), "", "KeptDataDiffers", False),
        (zone(dataNodesFilter="$[?(@.region = 'EU')]"), "", "Invalid", True),
    ],
)
async def test_a_zone_that_must_not_be_led_as_declared_is_led_as_it_was(
    world: World, declared: Zone, pause: str, reason: str, is_its: bool
) -> None:
    led = await leading(world)
    before = known(led)

    acceptance = led.declare_zone(declared, ZONE.uid, pause)

    assert acceptance.reason == reason
    assert led.has_data(declared, acceptance) is is_its
    assert known(led) == before


async def test_a_zone_that_is_new_and_paused_is_not_led(world: World) -> None:
    led = await leading(world)

    acceptance = led.declare_zone(zone("uid-2", "carts"), "uid-2", "it is paused")

    assert (acceptance.record, acceptance.message) == (None, "it is paused")
    assert led.runner.known_zone("uid-2") is None


async def test_addresses_of_a_paused_cluster_stay_in_force(world: World) -> None:
    led = await leading(world)
    everyone = list(led.addresses)
    led.declare(cluster(*everyone), "")

    led.declare(cluster(everyone[0]), "it is paused")

    assert led.status(led.cluster, "me").addresses == everyone
    assert not led.runner.unreached()
    led.declare(cluster(everyone[0]), "")
    assert led.status(led.cluster, "me").addresses == everyone[:1]


async def test_a_deleted_zone_is_erased_by_a_master_that_leads_only(world: World) -> None:
    led = await begun(world)
    assert not led.is_erased(None)
    await until(lambda: is_available(led.runner), "an available zone")

    assert led.is_erased(None)
    assert not led.is_erased(known(led))
    assert known(led).deleting
    await until(lambda: led.is_erased(led.runner.known_zone(ZONE.uid)), "the end of its data")
    await led.runner.stop()
    assert not led.is_erased(None)


async def test_all_zones_but_those_that_are_declared_are_erased(world: World) -> None:
    led = await begun(world)
    assert not led.erase_all_but((), "is deleted")
    await until(lambda: is_available(led.runner), "an available zone")
    led.declare_zone(zone("uid-2", "carts"), "uid-2", "")

    assert not led.erase_all_but(["uid-2"], "no longer declares it")

    assert known(led).deleting
    await until(lambda: led.erase_all_but(["uid-2"], "is deleted"), "the end of its data")
    assert not known(led, "uid-2").deleting


async def test_a_look_tells_what_has_changed_once(world: World) -> None:
    led = await begun(world)
    assert (led.look(), led.is_seen) == (NOTHING, False)
    await until(lambda: is_available(led.runner), "an available zone")

    first = led.look()

    assert first == Change(cluster=True, zones=[ZONE.uid], all_zones=True)
    assert led.is_seen
    assert led.look() == NOTHING
    led.declare_zone(zone(replicas=2), ZONE.uid, "")
    other = led.look()
    assert (other.zones, other.all_zones) == ([ZONE.uid], False)
    await led.runner.stop()
    assert led.look().all_zones  # why it is not led is in the status of each


async def test_a_status_is_as_of_now_whenever_the_last_look_was(world: World) -> None:
    """It is made when users have declared something: an old one would say that all is done."""
    led = await leading(world)
    led.look()
    everyone = list(led.addresses)

    led.declare(cluster(*everyone, "127.0.0.1:1"), "")
    [ready] = [e for e in led.status(led.cluster, "me").conditions if e.type == "Ready"]

    assert ready.status == "False"
    assert ready.message.startswith("3 of 4 agents are online; 127.0.0.1:1:")
    acceptance = led.declare_zone(zone(), ZONE.uid, "")

    def available() -> int:
        return led.zone_status(zone(), ZONE.uid, acceptance, "").partitions.available

    assert available() == ZONE.partitions
    await world.agents[NAMES[0]].die()
    await until(lambda: available() == 0, "a lost copy in the status, without another look")


async def test_a_change_that_has_only_been_declared_is_not_said_to_be_done(world: World) -> None:
    led = await leading(world)
    fewer = zone(replicas=2)
    led.declare_zone(fewer, ZONE.uid, "")
    led.look()
    more = zone(generation=2, replicas=3)
    whole = led.zone_status(fewer, ZONE.uid, led.declare_zone(fewer, ZONE.uid, ""), "")
    assert told(whole)["FullyReplicated"] == "True"

    five = zone(generation=3, replicas=5)
    made = led.zone_status(five, ZONE.uid, led.declare_zone(five, ZONE.uid, ""), "")

    assert made.observed_generation == 3
    assert told(made)["FullyReplicated"] == "False"
    assert made.phase == "Degraded"
    assert made.under_replicated == {"2": ZONE.partitions}
    made = led.zone_status(more, ZONE.uid, led.declare_zone(more, ZONE.uid, ""), "")
    assert told(made)["FullyReplicated"] == "True"


async def test_a_master_that_has_ended_says_nothing_of_what_was_declared_since(
    world: World,
) -> None:
    led = await leading(world)
    led.look()
    before = led.zone_status(zone(), ZONE.uid, led.declare_zone(zone(), ZONE.uid, ""), "")
    await led.runner.stop()

    changed = zone(generation=2, replicas=5).model_copy(update={"status": before})
    made = led.zone_status(changed, ZONE.uid, led.declare_zone(changed, ZONE.uid, ""), "")

    assert made.observed_generation == 1
    assert (told(made)["Available"], told(made)["FullyReplicated"]) == ("Unknown", "Unknown")
    assert made.endpoints == before.endpoints  # its agents go on


async def test_what_is_led_no_more_is_stopped_and_has_no_status(world: World) -> None:
    led = await leading(world)
    clusters = LedClusters({"main": led})
    assert [each.cluster for each in clusters.statuses("")] == ["main"]
    assert clusters.problems() == []

    await led.runner.stop()
    assert clusters.problems() == ["cluster main: stopped"]
    await clusters.end("main")
    assert clusters.statuses("") == []

    clusters["main"] = LedCluster(led.cluster, await world.lead())
    runner = clusters["main"].runner
    await until(lambda: runner.is_leading, "leading")
    await clusters.close()
    assert (clusters, runner.is_leading) == ({}, False)


async def test_declared_drains_are_asked_for_told_and_taken_back(world: World) -> None:
    """Three agents and two copies: one of them can be done without."""
    led = await leading(world)
    led.declare_zone(zone(replicas=2), ZONE.uid, "")
    addresses = [agent.address for agent in world.agents.values()]

    def declare(*drained: str) -> StorageClusterStatus:
        made = cluster(*addresses)
        spec = made.spec.model_copy(update={"drain_agents": [*drained]})
        led.declare(made.model_copy(update={"spec": spec}), "")
        return led.status(led.cluster, "me")

    def draining() -> list[str]:
        return [node.name for node in led.runner.status().nodes if node.state == "Draining"]

    first = NAMES[0]
    assert drained(declare(first, "agent-99"))[:2] == ("False", "Draining")
    await until(lambda: draining() == [first], "the drain")
    assert declare(first).drained == [first]

    # Two copies of each partition: with a second agent drained there would be too few.
    status, reason, message = drained(declare(*NAMES[:2]))
    assert (status, reason) == ("False", "Refused")
    assert "add an agent first" in message
    assert f"copies still have to move to other agents: {first}: zones {ZONE.name}" in message
    assert declare(*NAMES[:2]).emptied == []

    # A later process knows from the status what its predecessor asked for.
    told = led.status(led.cluster, "me")
    later = cluster(*addresses).model_copy(update={"status": told})
    after = LedCluster(later, led.runner)
    after.declare(later, "")
    after.look()
    await until(lambda: draining() == [], "the drain taken back")
    assert after.status(later, "me").drained == []


async def test_a_drain_that_was_not_declared_is_left_alone(world: World) -> None:
    led = await leading(world)
    led.declare_zone(zone(replicas=2), ZONE.uid, "")
    assert led.runner.ask_drain(NAMES[0], True) == ""
    await until(lambda: led.runner.status().nodes[0].state == "Draining", "the drain")

    led.declare(led.cluster, "")
    led.look()

    record = led.runner.registration(NAMES[0])
    assert record is not None
    assert record.draining


def drained(status: StorageClusterStatus) -> tuple[str, str, str]:
    [found] = [each for each in status.conditions if each.type == "AgentsDrained"]
    return found.status, found.reason, found.message


async def test_why_no_service_leads_to_a_new_zone_is_said(world: World) -> None:
    led = await begun(world)
    led.cluster = managed_cluster()
    view = ManagedView(Agents((), (), True), [], [], "", "", led.cluster.spec)
    led.managed = view
    assert led._lacks_name(zone()) == f"Service {ZONE.name}-clients is not created yet"
    led.managed = view._replace(unnamed={ZONE.name: "somebody else has it"})
    assert led._lacks_name(zone()) == "somebody else has it"
    led.managed = view._replace(named=frozenset({ZONE.name}))
    assert led._lacks_name(zone()) == ""
