"""The last verified backup and restore of a zone: in its status, and as metrics."""

from datetime import datetime
from typing import Any

import pytest

from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.schedules.backup_schedules import BackupSchedules
from quorate_operator.declared.runs.schedules.cron import last_but_one
from quorate_operator.declared.runs.schedules.schedules import text_of

Json = dict[str, Any]
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "books"}}
SCHEDULED = {
    "schedule": "0 3 * * *",
    "template": {"spec": {"zoneRef": {"name": "books"}, "destination": CLAIM}},
}
MONDAY, TUESDAY = "2026-01-05T03:00:00Z", "2026-01-06T03:00:00Z"


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


def show(led: Namespace, kind: str, name: str, outcome: str, began: str, ended: str) -> None:
    """Show a run of zone `books` that has ended."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    status = {
        "phase": "Finished",
        "outcome": outcome,
        "place": f"backups:{name}",
        "startTime": began,
        "completionTime": ended,
        "rows": 12,
    }
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": status}
    led.show(led.api.put(led.path(kind, name), {**body, "spec": {"zoneRef": {"name": "books"}}}))


def zone_status(led: Namespace) -> Json:
    return dict(led.api.objects[led.path("Zone", "books")].get("status", {}))


async def until_last(led: Namespace, field: str, run: str) -> Json:
    def found() -> Json:
        return dict(zone_status(led).get(field) or {})

    await until(lambda: found().get("run") == run, f"{field} {run}")
    return found()


def samples(led: Namespace) -> dict[str, float]:
    """Return the samples of zone `books` by name."""
    return {
        each.name: each.value
        for family in led.metrics.registry.collect()
        for each in family.samples
        if "_backup_" in each.name or "_restore_" in each.name
    }


def create_anew(led: Namespace) -> None:
    """Show that zone `books` was created on Monday noon, after one of its name was deleted."""
    body = led.api.objects[led.path("Zone", "books")]
    created = {**body["metadata"], "creationTimestamp": "2026-01-05T12:00:00Z"}
    led.show(led.api.put(led.path("Zone", "books"), {**body, "metadata": created}))


def schedule(led: Namespace, spec: Json = SCHEDULED, status: Json | None = None) -> BackupSchedules:
    """Show a schedule of zone `books` to what looks at schedules, and return that."""
    found = led.controller._runs._of[Kind.BACKUP_SCHEDULE]
    assert isinstance(found, BackupSchedules)
    metadata = {"name": "nightly", "uid": "u", "creationTimestamp": "2026-01-05T00:00:00Z"}
    body = {"apiVersion": API_VERSION, "kind": "ScheduledZoneBackup", "metadata": metadata}
    path = led.path("ScheduledZoneBackup", "nightly")
    found.seen(led.api.put(path, {**body, "spec": spec, "status": status or {}}))
    return found


async def test_the_last_verified_backup_counts_from_when_it_began(led: Namespace) -> None:
    led.metrics.observe_exports(led.controller.export_times)
    show(led, "ZoneBackup", "monday", "Complete", MONDAY, "2026-01-05T03:10:00Z")
    show(led, "ZoneBackup", "sunday", "Complete", "2026-01-04T03:00:00Z", TUESDAY)
    show(led, "ZoneBackup", "tuesday", "Failed", TUESDAY, "2026-01-06T03:10:00Z")

    told = await until_last(led, "lastBackup", "monday")
    assert told == {"time": MONDAY, "run": "monday", "place": "backups:monday"}
    assert samples(led) == {
        "quorate_operator_backup_timestamp_seconds": at("2026-01-05T03:00:00").timestamp(),
        "quorate_operator_backup_duration_seconds": 600,
        "quorate_operator_backup_rows": 12,
    }


async def test_the_last_restore_counts_from_when_it_ended(led: Namespace) -> None:
    led.metrics.observe_exports(led.controller.export_times)
    show(led, "ZoneRestore", "back", "Complete", MONDAY, "2026-01-05T03:10:00Z")

    told = await until_last(led, "lastRestore", "back")
    assert told["time"] == "2026-01-05T03:10:00Z"
    assert samples(led) == {
        "quorate_operator_restore_end_timestamp_seconds": at("2026-01-05T03:10:00").timestamp()
    }


async def test_it_is_known_after_its_object_and_the_operator_are_gone(led: Namespace) -> None:
    show(led, "ZoneBackup", "sunday", "Complete", "2026-01-04T03:00:00Z", "2026-01-04T03:10:00Z")
    show(led, "ZoneBackup", "monday", "Complete", MONDAY, "2026-01-05T03:10:00Z")
    await until_last(led, "lastBackup", "monday")
    del led.api.objects[led.path("ZoneBackup", "monday")]

    await led.restart()
    await led.until_available("books")
    [(_, cluster, zone, times)] = led.controller.export_times()
    assert (cluster, zone, times.backup) == ("main", "books", MONDAY)
    assert (times.backup_s, times.backup_rows) == (None, None), "not those of Sunday"
    assert zone_status(led)["lastBackup"]["run"] == "monday"


async def test_a_backup_of_a_zone_that_was_there_before_does_not_count(led: Namespace) -> None:
    create_anew(led)
    show(led, "ZoneBackup", "monday", "Complete", MONDAY, "2026-01-05T13:00:00Z")
    assert led.controller.export_times()[0][3].backup == ""

    show(led, "ZoneBackup", "tuesday", "Complete", TUESDAY, TUESDAY)
    await until_last(led, "lastBackup", "tuesday")


@pytest.mark.parametrize(
    ("more", "now", "due"),
    [
        ({}, "2026-01-05T02:59:00", ""),
        ({}, "2026-01-06T02:59:00", ""),  # its first time was due once
        ({}, "2026-01-06T03:00:01", MONDAY),
        ({}, "2026-01-07T03:00:01", TUESDAY),
        ({"suspend": True}, "2026-01-07T03:00:01", ""),
        ({"schedule": "never"}, "2026-01-07T03:00:01", ""),
        ({"schedule": "0 3 * * 1"}, "2026-01-13T10:00:00", MONDAY),
        # An earlier version read six fields.
        ({"schedule": "0 0 3 * * *"}, "2026-01-07T03:00:01", TUESDAY),
    ],
)
async def test_a_backup_is_due_by_the_last_but_one_time_of_a_schedule(
    declared: Namespace, more: Json, now: str, due: str
) -> None:
    spec = {**SCHEDULED, **more}
    of_six_fields = spec["schedule"] == "0 0 3 * * *"
    found = schedule(declared, spec, {"nextScheduleTime": TUESDAY} if of_six_fields else {})
    await found.reconcile("nightly", at(now))

    assert found.due("books") == due
    assert found.due("songs") == ""
    found.gone("nightly")
    assert found.due("books") == ""


async def test_no_backup_was_due_before_the_zone_was_created(led: Namespace) -> None:
    create_anew(led)
    found = schedule(led)

    await found.reconcile("nightly", at("2026-01-06T03:00:01"))
    assert found.due("books") == MONDAY
    assert led.controller.export_times()[0][3].due == ""

    await found.reconcile("nightly", at("2026-01-07T03:00:01"))
    assert led.controller.export_times()[0][3].due == TUESDAY


def test_the_last_but_one_time_may_be_long_ago() -> None:
    found = last_but_one("0 3 * * 1-5", "UTC", at("2026-01-12T12:00:00"))

    assert found is not None
    assert text_of(found) == "2026-01-09T03:00:00Z", "the Friday before this Monday"


async def test_times_at_which_a_schedule_was_suspended_are_not_due_once_it_is_resumed(
    declared: Namespace,
) -> None:
    """It was suspended on the 6th and 7th; an operator that begins then reads it in the status."""
    metadata = {"name": "nightly", "uid": "u", "creationTimestamp": "2026-01-05T00:00:00Z"}
    head = {"apiVersion": API_VERSION, "kind": "ScheduledZoneBackup", "metadata": metadata}
    path, dues = declared.path("ScheduledZoneBackup", "nightly"), []
    for now, suspend, restarts in (
        ("2026-01-06T03:00:01", True, False),
        ("2026-01-07T03:00:01", True, False),
        ("2026-01-07T12:00:00", False, True),
        ("2026-01-08T03:00:01", False, False),
        ("2026-01-09T03:00:01", False, False),
    ):
        if restarts:
            await declared.restart()
        found = declared.controller._runs._of[Kind.BACKUP_SCHEDULE]
        assert isinstance(found, BackupSchedules)
        status = declared.api.objects.get(path, {}).get("status", {})
        body = {**head, "spec": {**SCHEDULED, "suspend": suspend}, "status": status}
        found.seen(declared.api.put(path, body))
        await found.reconcile("nightly", at(now))
        dues.append(found.due("books"))

    assert dues == ["", "", "", "", "2026-01-08T03:00:00Z"]
