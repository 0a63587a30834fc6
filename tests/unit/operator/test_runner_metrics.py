"""Metrics of a cluster that is led: counts of events, and whether decisions can be stored."""

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.metastore import (
    Key,
    OutcomeUnknown,
    ReadRefused,
    Revision,
    ShardKey,
    Stored,
    Value,
    ZoneKey,
)
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate_loopback.runner_world import ZONE, World, is_available
from quorate_loopback.waiting import until
from quorate_operator.declared.led_cluster import LedCluster, LedClusters
from quorate_operator.mastership.event_log import EventCounts
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_operator.process.metrics import Metrics

LOSSES = (Reason.DATA_LOSS_ACCEPTED, Reason.PARTITION_LOST, Reason.STARTED_EMPTY)


def _events(metrics: Metrics, zone: str) -> dict[str, float]:
    """The counts of a zone's events, by reason."""
    (family,) = metrics.events.collect()
    return {
        each.labels["reason"]: each.value
        for each in family.samples
        if each.name.endswith("_total") and each.labels["zone"] == zone
    }


def _gauges(runner: Runner) -> dict[str, float]:
    """The figures of the cluster in a scrape."""
    metadata = {"name": "main", "uid": "uid-of-main", "generation": 1}
    made = {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": metadata}
    cluster = StorageCluster.parse({**made, "spec": {"addresses": ["127.0.0.1:1"]}})
    led = LedCluster(cluster, runner)
    metrics = Metrics()
    metrics.observe(lambda: LedClusters({"main": led}).statuses("ns"))
    place = {"namespace": "ns", "cluster": "main"}
    names = ("quorate_operator_blocked", "quorate_operator_invariant_broken")
    found = {name: metrics.registry.get_sample_value(name, place) for name in names}
    return {
        name.removeprefix("quorate_operator_"): value
        for name, value in found.items()
        if value is not None
    }


async def test_a_master_that_takes_over_counts_losses_from_0_on(world: World) -> None:
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    await first.stop()
    metrics = Metrics()

    runner = await world.lead(metrics=metrics)
    await until(lambda: runner.is_leading, "leads")

    assert {reason: _events(metrics, ZONE.name)[reason] for reason in LOSSES} == dict.fromkeys(
        LOSSES, 0
    )


async def test_the_counts_of_a_deleted_zone_go_with_it(world: World) -> None:
    metrics = Metrics()
    told: list[Event] = []
    runner = await world.lead(metrics=metrics, on_event=told.append)
    await until(lambda: is_available(runner), "available")
    assert _events(metrics, ZONE.name)[Reason.ZONE_CREATED] == 1

    runner.set_zone(msgspec.structs.replace(ZONE, deleting=True))
    await until(lambda: Reason.ZONE_DELETED in [each.reason for each in told], "deleted")

    assert _events(metrics, ZONE.name) == {}
    assert _events(metrics, ZONE.uid) == {}
    assert _events(metrics, "")[Reason.ZONE_DELETED] == 1
    runner.forget_zone(ZONE.uid)
    runner.tell([Event("", None, Reason.WRITES_TAKEN, "all is well")])
    assert _events(metrics, ZONE.name) == {}


async def test_the_counts_of_a_name_stay_while_another_zone_has_it(world: World) -> None:
    metrics = Metrics()
    told: list[Event] = []
    runner = await world.lead(metrics=metrics, on_event=told.append)
    await until(lambda: is_available(runner), "available")
    runner.set_zone(msgspec.structs.replace(ZONE, uid="uid-2"))

    runner.set_zone(msgspec.structs.replace(ZONE, deleting=True))
    await until(lambda: Reason.ZONE_DELETED in [each.reason for each in told], "deleted")

    assert _events(metrics, ZONE.name)[Reason.ZONE_CREATED] == 2


def test_the_counts_of_a_name_stay_while_a_zone_of_another_cluster_has_it() -> None:
    """The data of the zone of the first cluster was kept, and goes with that cluster."""
    metrics = Metrics()
    first, second = (EventCounts("ns", each, metrics) for each in ("main", "other"))
    first.lead([ZONE])
    second.lead([msgspec.structs.replace(ZONE, uid="uid-2")])
    second.count([Event("uid-2", None, Reason.PARTITION_LOST, "lost")], 1)

    first.count([Event(ZONE.uid, None, Reason.ZONE_DELETED, "deleted")], 1)
    assert _events(metrics, ZONE.name) == {**dict.fromkeys(LOSSES, 0), Reason.PARTITION_LOST: 1}

    second.count([Event("uid-2", None, Reason.ZONE_DELETED, "deleted")], 1)
    assert _events(metrics, ZONE.name) == {}


async def test_the_counts_of_a_name_go_with_its_last_zone_that_is_led(world: World) -> None:
    """A cluster that was deleted, and whose data is kept, had a zone of that name, too."""
    metrics = Metrics()
    other = EventCounts("", "other", metrics)
    other.lead([msgspec.structs.replace(ZONE, uid="uid-2")])
    runner = await world.lead(metrics=metrics)
    await until(lambda: is_available(runner), "available")

    await runner.stop()
    assert _events(metrics, ZONE.name)[Reason.ZONE_CREATED] == 1

    other.count([Event("uid-2", None, Reason.ZONE_DELETED, "deleted")], 1)
    assert _events(metrics, ZONE.name) == {}


async def test_the_counts_of_a_name_stay_while_the_next_master_leads_a_zone_of_it(
    world: World,
) -> None:
    metrics = Metrics()
    other = EventCounts("", "other", metrics)
    other.lead([msgspec.structs.replace(ZONE, uid="uid-2")])
    first = await world.lead(metrics=metrics)
    await until(lambda: is_available(first), "available")
    await first.stop()
    second = await world.lead(metrics=metrics)
    await until(lambda: second.is_leading, "leads")

    other.count([Event("uid-2", None, Reason.ZONE_DELETED, "deleted")], 1)
    assert _events(metrics, ZONE.name)[Reason.ZONE_CREATED] == 1


class Unreachable(MemoryMetastore):
    """Once it is `away`, no write is answered and every reading is refused."""

    is_away = False

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        if self.is_away:
            raise OutcomeUnknown("the answer was lost")
        return await super().write(key, value, expected)

    async def read(self, key: Key) -> Stored | None:
        if self.is_away:
            raise ReadRefused("partitiontables is forbidden")
        return await super().read(key)


async def test_a_cluster_is_blocked_while_nothing_can_be_written_or_read_back(
    world: World,
) -> None:
    metastore = Unreachable()
    runner = await world.lead(metastore=metastore)
    await until(lambda: is_available(runner), "available")
    assert _gauges(runner) == {"blocked": 0, "invariant_broken": 0}

    metastore.is_away = True
    await world.agents["agent-1"].die()

    await until(lambda: _gauges(runner)["blocked"] == 1, "blocked")
    metastore.is_away = False
    await until(lambda: _gauges(runner)["blocked"] == 0, "written again")


async def test_a_cluster_that_a_broken_invariant_stopped_says_so_until_it_is_led_again(
    world: World,
) -> None:
    await world.metastore.write(ZoneKey(ZONE.uid), ZONE, None)
    twice = PartitionRow(0, 1, 1, None, ("agent-1", "agent-1"), ())
    revision = await world.metastore.write(ShardKey(ZONE.uid, 0), (twice,), None)

    runner = await world.lead()

    await until(lambda: "broken invariant" in runner.problem, "stopped")
    assert _gauges(runner) == {"blocked": 0, "invariant_broken": 1}
    await world.metastore.write(ShardKey(ZONE.uid, 0), None, revision)
    later = await world.lead()
    await until(lambda: later.is_leading, "led again")
    assert _gauges(later)["invariant_broken"] == 0


async def test_an_invariant_that_a_decision_would_break_is_told_alike(world: World) -> None:
    runner = await world.lead()
    await until(lambda: runner.is_leading, "leads")

    runner.fail(InvariantError("partition 0: its version goes back"))

    assert _gauges(runner) == {"blocked": 1, "invariant_broken": 1}
