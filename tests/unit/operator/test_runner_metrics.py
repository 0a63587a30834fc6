"""Metrics of a cluster that is led: counts of events."""

import msgspec

from quorate.protocol.messages.events import Event, Reason
from quorate_loopback.runner_world import ZONE, World, is_available
from quorate_loopback.waiting import until
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
