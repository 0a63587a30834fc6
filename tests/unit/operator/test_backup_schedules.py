"""ScheduledZoneBackups: what their runs are, what they delete, and what the status lists."""

import time
from datetime import datetime
from typing import Any

import pytest

from quorate.protocol.messages.events import Event
from quorate.wire.exports.scheduled_zone_backup import ScheduledZoneBackup
from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.namespace import Namespace
from quorate_loopback.noted_events import note_events
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.exports_in_use import waits_for_deletion
from quorate_operator.declared.runs.scheduled_run import run_name
from quorate_operator.declared.runs.schedules.backup_schedules import BackupSchedules
from quorate_operator.kube.api import ApiRefused, ApiUnclear

Json = dict[str, Any]
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "books"}}
TEMPLATE = {
    "labels": {"team": "shop"},
    "spec": {"zoneRef": {"name": "books"}, "destination": CLAIM},
}
CREATED_AT = "2026-01-05T00:00:00"
SPEC = {"schedule": "0 3 * * *", "template": TEMPLATE, "retention": {"keepLast": 1}}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


def put(declared: Namespace, kind: str, name: str, spec: Json, **more: Any) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    created = {"creationTimestamp": f"{CREATED_AT}Z", **more.pop("metadata", {})}
    head = {"apiVersion": API_VERSION, "kind": kind, "metadata": {**metadata, **created}}
    return declared.api.put(declared.path(kind, name), {**head, "spec": spec, **more})


def schedules(declared: Namespace) -> BackupSchedules:
    found = declared.controller._runs._of[Kind.BACKUP_SCHEDULE]
    assert isinstance(found, BackupSchedules)
    return found


def backup(declared: Namespace, name: str) -> Json:
    return dict(declared.api.objects[declared.path("ZoneBackup", name)])


def status(declared: Namespace) -> Json:
    path = declared.path("ScheduledZoneBackup", "nightly")
    return dict(declared.api.objects[path].get("status", {}))


def finish(declared: Namespace, name: str, outcome: str, **more: Any) -> None:
    """Show the end of a run."""
    body = backup(declared, name)
    claim = body["spec"]["destination"]["persistentVolumeClaim"]
    told = {
        "phase": "Finished",
        "outcome": outcome,
        "place": f"{claim['claimName']}:{claim['path']}",
        "completionTime": "2026-01-05T03:10:00Z",
        "zoneUid": "uid-of-books",
        **more,
    }
    declared.show(declared.api.put(declared.path("ZoneBackup", name), {**body, "status": told}))


async def run_at(declared: Namespace, time: str) -> str:
    """Look at the schedule at this time; return the run that it has made."""
    await schedules(declared).reconcile("nightly", at(time))
    name = str(status(declared)["lastRun"])
    body = backup(declared, name)
    body["metadata"] = {"uid": f"uid-of-{name}", "creationTimestamp": f"{time}Z"} | body["metadata"]
    declared.show(declared.api.put(declared.path("ZoneBackup", name), body))
    return name


async def arguments_of(led: Namespace, run: str) -> list[str]:
    """Return the arguments of the pod of this run, once it has a Job."""
    job = f"/apis/batch/v1/namespaces/default/jobs/{run}-backup"

    def is_there() -> bool:
        led.show(led.api.objects[led.path("Zone", "books")])  # the watch is up to date
        return job in led.api.objects

    await until(is_there, "the Job")
    [container] = led.api.objects[job]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


async def test_each_run_has_a_folder_of_its_own(declared: Namespace) -> None:
    schedules(declared).seen(put(declared, "ScheduledZoneBackup", "nightly", SPEC))
    name = await run_at(declared, "2026-01-05T03:00:01")

    made = backup(declared, name)
    claim = {"claimName": "backups", "path": "books/nightly-20260105T030000Z"}
    assert made["spec"]["destination"] == {"persistentVolumeClaim": claim}
    assert made["metadata"]["labels"] == {"team": "shop", "quorate.io/schedule": "nightly"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-of-nightly"


async def test_ended_runs_are_listed_with_the_newest_verified_export(declared: Namespace) -> None:
    schedules(declared).seen(put(declared, "ScheduledZoneBackup", "nightly", SPEC))
    first = await run_at(declared, "2026-01-05T03:00:01")
    finish(declared, first, "Complete", exportId="aa", rows=7, bytes=70)
    second = await run_at(declared, "2026-01-06T03:00:01")
    finish(declared, second, "Failed")
    await schedules(declared).reconcile("nightly", at("2026-01-06T03:10:00"))

    told = status(declared)
    assert [(each["run"], each["outcome"]) for each in told["backups"]] == [
        (first, "Complete"),
        (second, "Failed"),
    ]
    assert told["backups"][0]["exportId"] == "aa"
    assert told["lastVerified"] == "backups:books/nightly-20260105T030000Z"
    assert told["lastSuccessfulTime"] == "2026-01-05T03:10:00Z"
    assert "active" not in told


async def test_a_run_that_is_listed_is_not_created_again(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was ahead, and its object is gone by now: the export is there, verified."""
    told: list[Event] = note_events(monkeypatch, "Backup")
    declared.start()
    declared.zone("books")
    await declared.until_available("books")
    schedules(declared).seen(put(declared, "ScheduledZoneBackup", "nightly", SPEC))
    first = await run_at(declared, "2026-01-06T03:00:01")
    finish(declared, first, "Complete")
    await schedules(declared).reconcile("nightly", at("2026-01-06T03:10:00"))
    declared.controller._runs.gone(Kind.BACKUP, first)
    del declared.api.objects[declared.path("ZoneBackup", first)]
    ahead = {**status(declared), "lastScheduleTime": "2026-01-07T03:00:00Z"}
    schedules(declared).gone("nightly")
    schedules(declared).seen(put(declared, "ScheduledZoneBackup", "nightly", SPEC, status=ahead))

    await schedules(declared).reconcile("nightly", at("2026-01-06T03:20:00"))

    assert declared.path("ZoneBackup", first) not in declared.api.objects
    said = f"2026-01-06T03:00:00Z: not run: {first} has run before"
    assert status(declared)["message"] == said
    assert status(declared)["lastScheduleTime"] == "2026-01-06T03:00:00Z"
    assert [each["outcome"] for each in status(declared)["backups"]] == ["Complete"]
    assert told == []


async def test_a_run_that_was_replaced_may_have_left_files(declared: Namespace) -> None:
    spec = {**SPEC, "concurrencyPolicy": "Replace"}
    schedules(declared).seen(put(declared, "ScheduledZoneBackup", "nightly", spec))
    first = await run_at(declared, "2026-01-05T03:00:01")
    await schedules(declared).reconcile("nightly", at("2026-01-06T03:00:01"))

    assert declared.path("ZoneBackup", first) not in declared.api.objects
    [listed] = status(declared)["backups"]
    assert (listed["run"], listed["outcome"]) == (first, "Removed")
    assert listed["place"] == "backups:books/nightly-20260105T030000Z"


async def two_runs(led: Namespace, spec: Json = SPEC) -> tuple[str, str]:
    """Two verified runs of the schedule, on the 4th and 5th."""
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    body = put(led, "ScheduledZoneBackup", "nightly", spec, metadata=metadata)
    schedules(led).seen(body)
    first = await run_at(led, "2026-01-04T03:00:01")
    finish(led, first, "Complete")
    second = await run_at(led, "2026-01-05T03:00:01")
    finish(led, second, "Complete")
    return first, second


def deletes(arguments: list[str]) -> list[str]:
    return [each for each in arguments if each.startswith("--delete=")]


async def test_a_pod_is_told_what_it_may_delete(led: Namespace) -> None:
    await two_runs(led)
    third = await run_at(led, "2026-01-06T03:00:01")

    arguments = await arguments_of(led, third)
    assert "--series=uid-of-nightly" in arguments
    assert deletes(arguments) == ["--delete=nightly-20260104T030000Z"]
    [ends_at] = [each for each in arguments if each.startswith("--ends-at=")]
    assert abs(int(ends_at.partition("=")[2]) - time.time() - 21600) < 60

    finish(led, third, "Complete", deleted=["nightly-20260104T030000Z"])
    await schedules(led).reconcile("nightly", at("2026-01-06T03:10:00"))
    assert [each.get("deletedBy", "") for each in status(led)["backups"]] == [third, "", ""]


def bases(arguments: list[str]) -> list[str]:
    return [each for each in arguments if each.startswith("--base")]


@pytest.mark.parametrize("suspend", [False, True])
async def test_an_incremental_run_takes_rows_from_the_newest_verified_export(
    led: Namespace, suspend: bool
) -> None:
    """Also if the schedule is suspended once it has begun, and without retention."""
    spec = {**SPEC, "incremental": True, "retention": None}
    await two_runs(led, spec)
    third = await run_at(led, "2026-01-06T03:00:01")
    body = put(led, "ScheduledZoneBackup", "nightly", {**spec, "suspend": suspend})
    schedules(led).seen({**body, "status": status(led)})

    assert bases(await arguments_of(led, third)) == ["--base-folder=nightly-20260105T030000Z"]


async def test_a_failed_export_is_no_base_nor_one_of_another_zone(led: Namespace) -> None:
    spec = {**SPEC, "incremental": True}
    await two_runs(led, spec)
    third = await run_at(led, "2026-01-06T03:00:01")
    finish(led, third, "Failed")
    fourth = await run_at(led, "2026-01-07T03:00:01")
    finish(led, fourth, "Complete", zoneUid="uid-of-another")
    fifth = await run_at(led, "2026-01-08T03:00:01")

    assert bases(await arguments_of(led, fifth)) == ["--base-folder=nightly-20260105T030000Z"]


async def test_the_first_run_of_a_schedule_has_no_base(led: Namespace) -> None:
    body = put(led, "ScheduledZoneBackup", "nightly", {**SPEC, "incremental": True})
    schedules(led).seen(body)
    first = await run_at(led, "2026-01-05T03:00:01")

    assert bases(await arguments_of(led, first)) == []


async def test_a_run_has_no_base_unless_the_schedule_says_so(led: Namespace) -> None:
    await two_runs(led)
    third = await run_at(led, "2026-01-06T03:00:01")

    assert bases(await arguments_of(led, third)) == []


async def test_a_suspended_schedule_deletes_nothing(led: Namespace) -> None:
    await two_runs(led)
    third = await run_at(led, "2026-01-06T03:00:01")
    suspended = put(led, "ScheduledZoneBackup", "nightly", {**SPEC, "suspend": True})
    schedules(led).seen({**suspended, "status": status(led)})

    assert deletes(await arguments_of(led, third)) == []


@pytest.mark.parametrize("phase", ["", "Waiting", "Running", "Finished"])
async def test_what_a_restore_reads_is_not_deleted(led: Namespace, phase: str) -> None:
    await two_runs(led)
    claim = {"claimName": "backups", "path": "books/nightly-20260104T030000Z"}
    spec = {"zoneRef": {"name": "shelves"}, "source": {"persistentVolumeClaim": claim}}
    put(led, "ZoneRestore", "back", spec, status={"phase": phase} if phase else {})
    third = await run_at(led, "2026-01-06T03:00:01")

    wanted = ["--delete=nightly-20260104T030000Z"] if phase == "Finished" else []
    assert deletes(await arguments_of(led, third)) == wanted


async def test_what_an_import_is_to_go_on_with_is_not_deleted(led: Namespace) -> None:
    await two_runs(led)
    led.zone("shelves", {"quorate.io/restoring": "backups:books/nightly-20260104T030000Z#0a.x"})
    third = await run_at(led, "2026-01-06T03:00:01")

    assert deletes(await arguments_of(led, third)) == []


async def test_a_restore_waits_for_a_pod_that_may_delete_its_source(led: Namespace) -> None:
    await two_runs(led)
    third = await run_at(led, "2026-01-06T03:00:01")
    await arguments_of(led, third)
    api, namespace = led.api.as_api, "default"

    waits = await waits_for_deletion(api, namespace, "backups:books/nightly-20260104T030000Z")
    assert f"ZoneBackup {third} is waited for" in waits
    for other in (
        "backups:books/nightly-20260105T030000Z",
        "others:books/nightly-20260104T030000Z",
    ):
        assert await waits_for_deletion(api, namespace, other) == ""
    claim = {"claimName": "backups", "path": "books/nightly-20260104T030000Z"}
    restore = {"zoneRef": {"name": "books"}, "source": {"persistentVolumeClaim": claim}}
    led.declare("ZoneRestore", "back", **restore)
    path = led.path("ZoneRestore", "back")

    def said() -> str:
        led.show(led.api.objects[led.path("Zone", "books")])
        return str(led.api.objects[path].get("status", {}).get("message"))

    await until(lambda: "as an old export" in said(), "the wait")
    job = f"/apis/batch/v1/namespaces/default/jobs/{third}-backup"
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    led.api.put(job, {**led.api.objects[job], "status": ended})
    assert await waits_for_deletion(api, namespace, "backups:books/nightly-20260104T030000Z") == ""


@pytest.mark.parametrize("has_successor", [False, True])
async def test_a_run_that_is_deleted_as_it_begins_has_the_work_of_its_own_schedule(
    led: Namespace, has_successor: bool
) -> None:
    """An object of its name without a schedule may be seen in its place."""
    await two_runs(led)
    third, before = run_name("nightly", at("2026-01-06T03:00:00")), led.api.refuse

    def deleted(method: str, path: str) -> int:
        if (method, path) == ("GET", led.path("ZoneRestore", "").removesuffix("/")):
            body = backup(led, third)
            led.controller._runs.gone(Kind.BACKUP, third)
            if has_successor:
                alone = {**body["metadata"], "uid": "another", "ownerReferences": []}
                led.controller._runs.backups.seen({**body, "metadata": alone})
            led.api.refuse = before
        return before(method, path)

    led.api.refuse = deleted
    await run_at(led, "2026-01-06T03:00:01")

    assert "--series=uid-of-nightly" in await arguments_of(led, third)
    assert not led.controller._refused


async def test_a_run_that_is_deleted_is_listed_as_it_was_seen_last(led: Namespace) -> None:
    first, second = await two_runs(led)
    for name in (first, second):
        led.controller._runs.gone(Kind.BACKUP, name)
        del led.api.objects[led.path("ZoneBackup", name)]
    await schedules(led).reconcile("nightly", at("2026-01-05T03:10:00"))

    assert [each["outcome"] for each in status(led)["backups"]] == ["Complete", "Complete"]


async def test_a_run_of_which_nothing_was_seen_is_not_deleted(declared: Namespace) -> None:
    body = put(declared, "ScheduledZoneBackup", "nightly", SPEC)
    unseen = run_name("nightly", at("2026-01-05T03:00:00"))
    told = {"active": [unseen], "lastScheduleTime": "2026-01-05T03:00:00Z"}
    schedules(declared).seen({**body, "status": told})
    await schedules(declared).reconcile("nightly", at("2026-01-05T03:10:00"))

    [listed] = status(declared)["backups"]
    assert (listed["run"], listed["outcome"]) == (unseen, "Unseen")


async def test_exports_of_a_zone_that_was_there_before_are_left(led: Namespace) -> None:
    schedules(led).seen(put(led, "ScheduledZoneBackup", "nightly", SPEC))
    first = await run_at(led, "2026-01-05T03:00:01")
    finish(led, first, "Complete", zoneUid="uid-of-another")
    second = await run_at(led, "2026-01-06T03:00:01")
    finish(led, second, "Complete")
    third = await run_at(led, "2026-01-07T03:00:01")

    assert deletes(await arguments_of(led, third)) == []


async def test_a_skipped_time_is_an_event(led: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Event] = note_events(monkeypatch, "Backup")
    schedules(led).seen(put(led, "ScheduledZoneBackup", "nightly", SPEC))
    first = await run_at(led, "2026-01-05T03:00:01")
    await schedules(led).reconcile("nightly", at("2026-01-06T03:00:01"))

    assert [(each.reason, each.kind) for each in told] == [("BackupSkipped", "Warning")]
    assert f"{first} is not finished" in told[0].message


async def test_a_run_that_is_refused_is_told_and_tried_again(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = note_events(monkeypatch, "Backup")
    granted = led.api.refuse
    backups = led.path("ZoneBackup", "").removesuffix("/")

    def refuse(method: str, path: str) -> int:
        return 403 if (method, path) == ("POST", backups) else granted(method, path)

    led.api.refuse = refuse
    schedules(led).seen(put(led, "ScheduledZoneBackup", "nightly", SPEC))
    for second in ("01", "31"):
        with pytest.raises(ApiRefused):
            await schedules(led).reconcile("nightly", at(f"2026-01-05T03:00:{second}"))

    assert status(led)["message"].startswith("2026-01-05T03:00:00Z: not created yet: ")
    assert "lastScheduleTime" not in status(led)
    assert [each.reason for each in told] == ["BackupSkipped"]
    why = status(led)["message"].partition("yet: ")[2]
    led.api.refuse = granted
    await schedules(led).reconcile("nightly", at("2026-01-05T03:01:01"))
    assert status(led)["message"] == "2026-01-05T03:00:00Z: run"

    led.api.refuse = refuse
    finish(led, str(status(led)["lastRun"]), "Complete")
    with pytest.raises(ApiRefused):
        await schedules(led).reconcile("nightly", at("2026-01-06T03:00:01"))
    await schedules(led).reconcile("nightly", at("2026-01-06T04:00:01"))
    late = "not run: it was not created within startingDeadlineSeconds (3600)"
    assert status(led)["message"] == f"2026-01-06T03:00:00Z: {late}: {why}"
    assert status(led)["lastScheduleTime"] == "2026-01-06T03:00:00Z"
    assert len(told) == 3


async def test_a_run_is_replaced_only_by_one_that_is_created(led: Namespace) -> None:
    spec, granted = {**SPEC, "concurrencyPolicy": "Replace"}, led.api.refuse
    backups = led.path("ZoneBackup", "").removesuffix("/")
    schedules(led).seen(put(led, "ScheduledZoneBackup", "nightly", spec))
    first = await run_at(led, "2026-01-05T03:00:01")
    led.api.refuse = lambda method, path: (
        403 if (method, path) == ("POST", backups) else granted(method, path)
    )
    with pytest.raises(ApiRefused):
        await schedules(led).reconcile("nightly", at("2026-01-06T03:00:01"))
    assert status(led)["active"] == [first]

    led.api.refuse = lambda method, path: 500 if method == "DELETE" else granted(method, path)
    with pytest.raises(ApiUnclear):
        await schedules(led).reconcile("nightly", at("2026-01-06T03:00:01"))
    second = run_name("nightly", at("2026-01-06T03:00:00"))
    assert backup(led, second)
    led.show(backup(led, second))
    led.api.refuse = granted
    await schedules(led).reconcile("nightly", at("2026-01-06T03:00:01"))
    assert led.path("ZoneBackup", first) not in led.api.objects
    assert status(led)["active"] == [second]


async def test_a_time_that_was_skipped_before_the_zone_is_led_is_an_event(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operator led at that time."""
    told: list[Event] = note_events(monkeypatch, "Backup")
    spec = {**SPEC, "startingDeadlineSeconds": 60}
    schedules(declared).seen(put(declared, "ScheduledZoneBackup", "nightly", spec))
    await schedules(declared).reconcile("nightly", at("2026-01-05T04:00:00"))
    assert told == []
    declared.start()
    declared.zone("books")
    await until(lambda: bool(told), "the event")

    assert [(each.zone, each.reason) for each in told] == [("uid-of-books", "BackupSkipped")]


def test_a_place_leaves_room_for_folders() -> None:
    head = {"apiVersion": API_VERSION, "kind": "ScheduledZoneBackup", "metadata": {"name": "n"}}
    s3 = {"s3": {"url": "s3://bucket/" + "b" * 388}}
    spec = {**SPEC, "template": {"spec": {"zoneRef": {"name": "books"}, "destination": s3}}}

    assert ScheduledZoneBackup.parse({**head, "spec": spec}).spec.retention is not None
    s3["s3"]["url"] += "b"
    with pytest.raises(Exception, match="at most 400 characters"):
        ScheduledZoneBackup.parse({**head, "spec": spec})
