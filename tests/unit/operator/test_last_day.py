"""Failovers and missing copies of a zone's last 24 hours: by the hour, kept by its status."""

import json
from pathlib import Path
from typing import Any

from quorate.facts.time import Now
from quorate.protocol.settings import DEFAULTS
from quorate.wire.resource import API_VERSION
from quorate.wire.zone_day import ZoneDay, ZoneHour
from quorate_link.secret import write_private
from quorate_lone_master.zone_status import status_of_zone
from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import NAMES, ScriptedAgent
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until
from quorate_operator.declared.history.last_day import SETTLE_MS, LastDay
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
        (hour.start[11:16], hour.failovers, hour.under_replicated, hour.unavailable_seconds)
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
    assert {hour.under_replicated for hour in told.hours} == {1}
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
    await embedded.close()

    again = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path)
    await again.start()
    await until(lambda: "lastDay" in told(again), "the next operator")
    assert told(again)["lastDay"]["hours"]
    await again.close()
    await agent.close()
