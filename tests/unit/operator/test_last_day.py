"""Failovers and missing copies of a zone's last 24 hours: by the hour, kept by its status."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from quorate.facts.time import Now
from quorate.protocol.settings import DEFAULTS
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.zone import ZonePartitions, ZoneStatus
from quorate.wire.zone_day import ZoneDay, ZoneHour
from quorate_link.secret import write_private
from quorate_lone_master.zone_status import status_of_zone
from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import NAMES, ScriptedAgent
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until
from quorate_operator.declared.declared_zone import DeclaredZone
from quorate_operator.declared.history.last_day import (
    CHANGED_S,
    LASTING_S,
    SETTLE_MS,
    LastDay,
    Stored,
)
from quorate_operator.embedded.operator import Embedded
from quorate_operator.metastores.sqlite_file import EmbeddedStore

HOUR = 3_600_000
MIDDAY = 1_795_003_200_000 - 1_795_003_200_000 % HOUR
"""An hour begins."""
SECOND = 1000


def at(ms: int) -> Now:
    return Now(MIDDAY + ms, 5_000_000 + ms)


def begun(before: ZoneDay | None = None) -> LastDay:
    """Led since midday, and served at once."""
    day = LastDay(at(0), before)
    day.note(status_of_zone(), at(0))
    return day


def counts(day: ZoneDay) -> list[tuple[str, int, int, int]]:
    return [
        (
            hour.start[11:16],
            hour.failovers,
            hour.partitions_missing_copies,
            hour.unavailable_seconds,
        )
        for hour in day.hours
    ]


def test_a_quiet_zone_has_no_hours() -> None:
    day = begun().told(at(5 * HOUR))

    assert day.hours == []
    assert day.since == day.watched_since


def test_an_outage_is_counted_in_the_hours_in_which_it_was() -> None:
    day = begun()
    start = HOUR - 90 * SECOND
    day.note(status_of_zone(unavailable=3, missing_copies={1: 20, 2: 1}), at(start))
    day.note(status_of_zone(missing_copies={1: 4}, failovers=3), at(start + 100 * SECOND))
    day.note(status_of_zone(failovers=3), at(start + 200 * SECOND))

    first, second = counts(day.told(at(2 * HOUR)))

    assert first[1:] == (0, 21, 90)
    assert second[1:] == (3, 21, 10), "what misses at the beginning of an hour counts in it"


def test_what_lasts_is_counted_without_another_look() -> None:
    day = begun()
    day.note(status_of_zone(unavailable=1), at(0))

    assert counts(day.told(at(30 * SECOND)))[0][3] == 30
    assert counts(day.told(at(50 * SECOND)))[0][3] == 50
    assert day.changes == 1


def test_a_short_outage_is_not_none() -> None:
    day = begun()
    day.note(status_of_zone(unavailable=1), at(0))
    day.note(status_of_zone(), at(200))

    assert [each[3] for each in counts(day.told(at(HOUR)))] == [1]


def test_only_24_hours_are_kept_however_long_the_loss() -> None:
    day = begun()
    day.note(status_of_zone(missing_copies={1: 2}), at(0))
    day.note(status_of_zone(missing_copies={1: 1}), at(HOUR))

    told = day.told(at(40 * HOUR))
    assert len(told.hours) == 24
    assert {hour.partitions_missing_copies for hour in told.hours} == {1}
    day.note(status_of_zone(), at(40 * HOUR))
    assert day.told(at(70 * HOUR)).hours == []


def test_a_clock_that_is_set_makes_no_outage() -> None:
    day = begun()
    day.note(status_of_zone(unavailable=1), at(0))
    day.note(status_of_zone(), Now(MIDDAY + 9 * HOUR, 5_000_000 + SECOND))

    assert sum(each[3] for each in counts(day.told(at(9 * HOUR)))) == 2, "now, and then"


def test_the_next_operator_goes_on_from_what_the_status_has() -> None:
    before = ZoneDay(
        since="2020-01-01T00:00:00Z",
        watched_since="2020-01-01T00:00:00Z",
        hours=[
            ZoneHour(start="2020-01-01T00:00:00Z", failovers=9),
            ZoneHour(start=begun().told(at(0)).since, failovers=2, unavailable_seconds=7),
            ZoneHour(start="soon", failovers=9),
        ],
    )
    day = begun(before)
    day.note(status_of_zone(failovers=5), at(SECOND))

    told = day.told(at(SECOND))
    assert [each[1:] for each in counts(told)] == [(7, 0, 7)]
    assert told.since == "2020-01-01T00:00:00Z"
    assert told.watched_since == begun().told(at(0)).since


def test_a_new_zone_and_a_new_operator_have_no_outage_yet() -> None:
    day = LastDay(at(0), None)
    day.note(status_of_zone(phase="Pending", unavailable=64), at(0))
    day.note(status_of_zone(phase="Unavailable", unavailable=64, missing_copies={1: 64}), at(100))
    assert day.told(at(SETTLE_MS - 1)).hours == []

    told = day.told(at(SETTLE_MS))
    told = day.told(at(SETTLE_MS + 4 * SECOND))

    assert [each[1:] for each in counts(told)] == [(0, 64, 4)], "it is an outage after all"


def test_an_hour_has_no_more_than_an_hour_of_outage() -> None:
    hours = [ZoneHour(start=begun().told(at(0)).since, unavailable_seconds=9000)]
    since = "2020-01-01T00:00:00Z"
    told = begun(ZoneDay(since=since, watched_since=since, hours=hours)).told(at(0))
    assert [hour.unavailable_seconds for hour in told.hours] == [3600]

    day = begun()
    day.note(status_of_zone(unavailable=1), at(HOUR - SECOND))
    for minutes in (50, 100, 150):  # the wall clock was set back, and stands still
        told = day.told(Now(MIDDAY + HOUR - SECOND, 5_000_000 + HOUR + minutes * 60 * SECOND))
    assert [hour.unavailable_seconds for hour in told.hours] == [3600]


def test_events_are_stored_at_once_and_other_changes_after_a_while() -> None:
    day = begun()
    assert not day.is_due(Stored(), 0)

    day.note(status_of_zone(unavailable=1, missing_copies={1: 9}), at(SECOND))
    assert day.is_due(Stored(), 1)
    stored = day.stored(1)
    day.note(status_of_zone(unavailable=1, missing_copies={1: 8}), at(2 * SECOND))
    assert not day.is_due(stored, 1 + CHANGED_S / 2)
    assert day.is_due(stored, 1 + CHANGED_S)
    stored = day.stored(11)
    assert not day.is_due(stored, 11 + LASTING_S - 1)
    assert day.is_due(stored, 11 + LASTING_S), "the outage lasts"

    day.note(status_of_zone(missing_copies={1: 8}), at(12 * SECOND))
    assert day.is_due(stored, 12), "its end"
    day.note(status_of_zone(failovers=1), at(13 * SECOND))
    assert day.is_due(day.stored(13)._replace(events=stored.events + 1), 13), "a failover"
    assert not day.is_due(day.stored(13), 13 + 2 * LASTING_S), "all is well"


def test_a_last_day_is_written_alone_only_while_the_zone_is_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    zone = DeclaredZone({"metadata": {"name": "books", "uid": "u", "generation": 1}, "spec": {}})
    day = begun()

    def status(unavailable: int, ms: int) -> ZoneStatus:
        day.note(status_of_zone(unavailable=unavailable), at(ms))
        partitions = ZonePartitions(unavailable=unavailable)
        return ZoneStatus(partitions=partitions, last_day=day.told(at(ms)))

    assert zone.wait_s(status(3, 0)) == 0
    zone.was_told(zone.fresh)
    assert zone.wait_s(status(3, SECOND)) == LASTING_S
    assert zone.is_told
    now_s += LASTING_S - 1
    assert zone.wait_s(status(3, 299 * SECOND)) == 1
    assert zone.is_told
    now_s += 1
    assert zone.wait_s(status(3, 300 * SECOND)) == 0
    assert not zone.is_told
    zone.was_told(zone.fresh)
    assert zone.wait_s(status(3, 300 * SECOND)) == LASTING_S, "nothing new: look again later"

    zone.wait_s(status(0, 301 * SECOND))
    zone.was_told(zone.fresh)
    now_s += 10 * LASTING_S
    assert zone.wait_s(ZoneStatus(last_day=LastDay(at(0), None).told(at(0)))) == 0
    assert zone.is_told, "a last day alone, and all is well"


def test_who_leads_again_goes_on_from_what_was_not_written() -> None:
    zone = DeclaredZone({"metadata": {"name": "books", "uid": "u", "generation": 1}, "spec": {}})
    day = begun()
    zone.wait_s(ZoneStatus(last_day=day.told(at(0))))
    zone.was_told(zone.fresh)
    day.note(status_of_zone(failovers=4), at(SECOND))
    zone.wait_s(ZoneStatus(last_day=day.told(at(SECOND))))

    assert counts(zone.known_status.last_day or day.told(at(0)))[0][1] == 4

    later = LastDay(at(HOUR), None).told(at(HOUR))
    zone.was_told(ZoneStatus(last_day=later).model_dump(mode="json", by_alias=True))
    assert zone.known_status.last_day == later, "another operator led it meanwhile"


def zone_of(led: Namespace) -> dict[str, Any]:
    return dict(led.api.objects[led.path("Zone", "books")].get("status", {}))


async def test_a_failover_is_in_the_status_with_the_next_write_and_stays(led: Namespace) -> None:
    assert "lastDay" in zone_of(led), "with the first status"
    await led.world.agents[NAMES[0]].die()

    def failovers() -> int:
        hours = (zone_of(led).get("lastDay") or {}).get("hours", [])
        return sum(each.get("failovers", 0) for each in hours)

    await until(lambda: failovers() > 0, "failovers in the status", 20)
    told = failovers()
    led.metrics.observe(led.controller.clusters)
    series = {"namespace": "default", "cluster": "main", "zone": "books"}
    counted = led.metrics.registry.get_sample_value("quorate_operator_failovers_total", series)
    assert counted is not None
    assert counted >= told
    before = zone_of(led)["lastDay"]
    await led.restart()
    await until(lambda: failovers() > 0, "the next operator", 20)

    assert zone_of(led)["lastDay"]["since"] == before["since"]


async def test_it_costs_no_write_of_its_own(led: Namespace) -> None:
    path = led.path("Zone", "books")
    zone = led.controller._zones["books"]
    zone.wait_s(zone.known_status.model_copy(update={"last_day": None}))
    assert zone.is_told

    zone.wait_s(zone.known_status.model_copy(update={"phase": "Degraded"}))
    assert not zone.is_told
    assert led.api.objects[path]["status"]["phase"] != "Degraded"


async def test_the_embedded_operator_keeps_it_over_a_restart(tmp_path: Path) -> None:
    agent = ScriptedAgent("agent-1", lambda table: None)
    await agent.listen()
    write_private(tmp_path / "main.json", json.dumps(SECRET.texts()))
    embedded = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path)
    await embedded.start()
    head = {"apiVersion": API_VERSION}
    for kind, name, spec in (
        ("StorageCluster", "main", {"external": {"addresses": [agent.address]}}),
        ("Zone", "books", {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": 1}),
    ):
        made = {**head, "kind": kind, "metadata": {"name": name}, "spec": spec}
        await embedded.objects.put(f"{kind.lower()}s", name, made)

    def told(of: Embedded) -> dict[str, Any]:
        [zone] = of.objects.list("zones")
        return dict(of.with_status(zone)["status"])

    await until(lambda: told(embedded)["phase"] == "Available", "an available zone")
    await agent.die()
    await until(lambda: told(embedded)["phase"] == "Unavailable", "its loss", 20)
    await until(lambda: "status" in embedded.objects.list("zones")[0], "it is kept", 20)

    def seconds(of: Embedded) -> int:
        return sum(each.get("unavailableSeconds", 0) for each in told(of)["lastDay"]["hours"])

    await until(lambda: seconds(embedded) >= 2, "it lasts")
    await embedded.close()
    stored = embedded.objects.list("zones")[0]["status"]["lastDay"]["hours"]
    assert sum(each["unavailableSeconds"] for each in stored) >= 2, "as of the end"

    again = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path)
    await again.start()
    await until(lambda: "lastDay" in told(again), "the next operator")
    assert told(again)["lastDay"]["hours"]
    await again.close()
    await agent.close()
