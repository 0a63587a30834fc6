"""ScheduledDataValidations: which times create a run, and which runs are kept."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.scheduled_data_validation import ScheduledDataValidation
from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.scheduled_run import ScheduledRun
from quorate_operator.declared.runs.schedules.cron import BadSchedule, last_and_next
from quorate_operator.declared.runs.schedules.schedules import judge, run_of, too_old
from quorate_operator.declared.runs.schedules.validation_schedules import ValidationSchedules

Json = dict[str, Any]
ZONE = {"spec": {"zoneRef": {"name": "books"}}}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


@pytest.mark.parametrize(
    ("schedule", "zone", "now", "last", "following"),
    [
        ("0 3 * * *", "UTC", "2026-01-05T10:00:30", "2026-01-05T03:00", "2026-01-06T03:00"),
        ("0 3 * * *", "UTC", "2026-01-05T03:00:00", "2026-01-05T03:00", "2026-01-06T03:00"),
        ("0 3 * * *", "UTC", "2026-01-05T03:00:59", "2026-01-05T03:00", "2026-01-06T03:00"),
        ("0 3 * * *", "UTC", "2026-01-05T02:59:59", "2026-01-04T03:00", "2026-01-05T03:00"),
        ("*/15 * * * *", "UTC", "2026-01-05T03:14:59", "2026-01-05T03:00", "2026-01-05T03:15"),
        ("0 3 * * 1", "UTC", "2026-01-05T12:00:00", "2026-01-05T03:00", "2026-01-12T03:00"),
        (
            "0 3 * * *",
            "Europe/Berlin",
            "2026-01-05T10:00:00",
            "2026-01-05T02:00",
            "2026-01-06T02:00",
        ),
        (
            "0 3 * * *",
            "Europe/Berlin",
            "2026-07-05T10:00:00",
            "2026-07-05T01:00",
            "2026-07-06T01:00",
        ),
        # In the night of 29 March there is no 02:30 in Berlin: 03:00 follows 01:59.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-29T02:00:00",
            "2026-03-29T01:00",
            "2026-03-30T00:30",
        ),
    ],
)
def test_times_of_a_schedule(schedule: str, zone: str, now: str, last: str, following: str) -> None:
    assert last_and_next(schedule, zone, at(now)) == (at(f"{last}:00"), at(f"{following}:00"))


def test_a_time_that_clocks_show_twice_is_taken_once() -> None:
    """On 25 October Berlin's clocks show 02:30 at 00:30 and at 01:30 UTC."""
    now, seen = at("2026-10-24T22:00:00"), set()
    while now < at("2026-10-25T06:00:00"):
        last, following = last_and_next("30 2 * * *", "Europe/Berlin", now)
        seen.add(last)
        assert following is not None
        assert following > now
        now += timedelta(minutes=10)

    assert (
        len({each for each in seen if each is not None and each > at("2026-10-24T12:00:00")}) == 1
    )


@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
@pytest.mark.parametrize(
    "schedule",
    [
        "*/15 * * * *",
        "0 * * * *",
        "15 */2 * * *",
        "15 */3 * * *",
        "5,35 1-3 * * *",
        "*/20 2 * * *",
        "30 2 * * *",
    ],
)
def test_the_next_time_is_the_last_one_when_it_has_come(schedule: str, day: str) -> None:
    """In nights in which clocks are set, too: else a time would be told and not be dealt with."""
    now, end = at(f"{day}T18:00:00"), at(f"{day}T18:00:00") + timedelta(hours=15)
    told, dealt = set(), set()
    while now < end:
        last, following = last_and_next(schedule, "Europe/Berlin", now)
        told.add(following)
        dealt.add(last)
        now += timedelta(minutes=5)

    first = min(each for each in told if each is not None)
    assert {each for each in told if each and each < end} == {
        each for each in dealt if each and each >= first
    }


def test_where_minutes_or_hours_have_a_star_a_time_that_clocks_show_twice_is_taken_twice() -> None:
    found, now = [], at("2026-10-24T23:59:00")
    while now < at("2026-10-25T02:00:00"):
        _, following = last_and_next("15 */2 * * *", "Europe/Berlin", now)
        assert following is not None
        found.append(following)
        now = following

    assert found == [at(f"2026-10-25T{time}:15:00") for time in ("00", "01", "03")]


@pytest.mark.parametrize(
    ("schedule", "zone", "said"),
    [
        ("every day", "UTC", "schedule every day cannot be read"),
        ("*/20 * * * * *", "UTC", "schedule */20 * * * * * cannot be read"),
        ("61 * * * *", "UTC", "schedule 61 * * * * cannot be read"),
        ("0 3 * * *", "Europe/Paradise", "timeZone Europe/Paradise is not known"),
        ("0 3 * * *", "../etc/passwd", "timeZone ../etc/passwd is not known"),
    ],
)
def test_a_bad_schedule_is_named(schedule: str, zone: str, said: str) -> None:
    with pytest.raises(BadSchedule, match=said.replace("*", "[*]")):
        last_and_next(schedule, zone, at("2026-01-05T10:00:00"))


def scheduled(**spec: Any) -> ScheduledDataValidation:
    whole = {"schedule": "0 3 * * *", "template": ZONE, **spec}
    metadata = {"name": "nightly", "namespace": "shop", "uid": "uid-1"}
    head = {"apiVersion": API_VERSION, "kind": "ScheduledDataValidation", "metadata": metadata}
    return ScheduledDataValidation.parse({**head, "spec": whole})


DUE = at("2026-01-05T03:00:00")


@pytest.mark.parametrize(
    ("spec", "late_s", "active", "creates", "replaces", "said"),
    [
        ({}, 1, [], True, False, "2026-01-05T03:00:00Z: run"),
        ({"suspend": True}, 1, [], False, False, "not run: suspended"),
        ({}, 3601, [], False, False, "not created within startingDeadlineSeconds (3600)"),
        ({"startingDeadlineSeconds": 7200}, 3601, [], True, False, "run"),
        ({}, 1, ["a"], False, False, "not run: a is not finished"),
        ({"concurrencyPolicy": "Allow"}, 1, ["a"], True, False, "run"),
        ({"concurrencyPolicy": "Replace"}, 1, ["a", "b"], True, True, "run in place of a, b"),
    ],
)
def test_what_becomes_of_a_time(
    spec: Json, late_s: float, active: list[str], creates: bool, replaces: bool, said: str
) -> None:
    judged = judge(scheduled(**spec).spec, DUE, DUE + timedelta(seconds=late_s), active)

    assert (judged.creates, judged.replaces) == (creates, replaces)
    assert said in judged.message


def test_a_run_has_the_minute_in_its_name_and_goes_with_the_schedule() -> None:
    template = {"labels": {"team": "shop"}, "spec": {**ZONE["spec"], "level": "Digest"}}
    schedule = scheduled(template=template)
    run = run_of(schedule, DUE, DataValidation, schedule.spec.template.spec)

    assert run["metadata"]["name"] == f"nightly-{int(DUE.timestamp()) // 60}"
    assert run["metadata"]["labels"] == {"team": "shop", "quorate.io/schedule": "nightly"}
    [owner] = run["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ScheduledDataValidation", "uid-1")
    assert run["spec"] == {"zoneRef": {"name": "books"}, "level": "Digest"}


def test_the_oldest_finished_runs_go_beyond_each_limit() -> None:
    verdicts = ["Agree", "Differ", "Agree", "CouldNotTell", "", "Agree", "Refused"]
    runs = [
        ScheduledRun(f"2026-01-0{day}", f"run-{day}", "nightly", verdict, verdict == "Agree")
        for day, verdict in enumerate(verdicts, 1)
    ]
    limits = {"successfulRunsHistoryLimit": 1, "failedRunsHistoryLimit": 2}

    assert too_old(scheduled(**limits).spec, runs) == ["run-1", "run-3", "run-2"]
    assert too_old(scheduled().spec, runs) == []


CREATED = {"creationTimestamp": "2026-01-05T00:00:00Z"}


def put(declared: Namespace, kind: str, name: str, spec: Json, **more: Any) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", **CREATED}
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec, **more}
    return declared.api.put(declared.path(kind, name), body)


def schedules(declared: Namespace) -> ValidationSchedules:
    found = declared.controller._runs._of[Kind.SCHEDULE]
    assert isinstance(found, ValidationSchedules)
    return found


def runs(declared: Namespace) -> list[str]:
    return [path for path in declared.api.objects if "/datavalidations/" in path]


def status(declared: Namespace) -> Json:
    path = declared.path("ScheduledDataValidation", "nightly")
    return dict(declared.api.objects[path].get("status", {}))


async def test_a_time_is_dealt_with_once_by_whichever_operator(declared: Namespace) -> None:
    spec = {"schedule": "0 3 * * *", "template": ZONE}
    body = put(declared, "ScheduledDataValidation", "nightly", spec)
    first = schedules(declared)
    assert first.seen(body)

    assert await first.reconcile("nightly", at("2026-01-05T02:59:50")) == pytest.approx(10, abs=1)
    assert runs(declared) == []
    await first.reconcile("nightly", at("2026-01-05T03:00:01"))
    assert len(runs(declared)) == 1
    told = status(declared)
    assert told["lastScheduleTime"] == "2026-01-05T03:00:00Z"
    assert runs(declared)[0].endswith(told["lastRun"])
    assert told["active"] == [told["lastRun"]]
    assert told["nextScheduleTime"] == "2026-01-06T03:00:00Z"
    assert not first.seen(body), "as it was before the status: the watch is behind"
    await first.reconcile("nightly", at("2026-01-05T03:00:02"))

    await declared.restart()
    other = schedules(declared)
    other.seen(body)  # the one that created it ended before it wrote the status
    await other.reconcile("nightly", at("2026-01-05T03:00:03"))

    assert len(runs(declared)) == 1
    assert status(declared)["message"] == "2026-01-05T03:00:00Z: run"
    await other.reconcile("nightly", at("2026-01-06T03:00:03"))
    assert len(runs(declared)) == 1, "the first one is not finished"
    assert "is not finished" in status(declared)["message"]


async def test_a_status_is_not_told_to_a_later_schedule_of_the_name(declared: Namespace) -> None:
    spec = {"schedule": "0 3 * * *", "template": ZONE}
    earlier = put(declared, "ScheduledDataValidation", "nightly", spec)
    later = {**earlier, "metadata": {**earlier["metadata"], "uid": "uid-of-another"}}
    later = declared.api.put(declared.path("ScheduledDataValidation", "nightly"), later)
    found = schedules(declared)
    found.seen(earlier)
    await found.reconcile("nightly", at("2026-01-05T03:00:01"))

    assert status(declared) == {}
    assert found._told == {}
    found.seen(later)
    await found.reconcile("nightly", at("2026-01-05T03:00:01"))
    assert status(declared)["lastScheduleTime"] == "2026-01-05T03:00:00Z"
    found.seen(earlier)
    assert found._told == {}, "one status for each name is kept"


@pytest.mark.parametrize(
    ("last", "made"),
    [
        ("2026-01-05T03:05:00Z", False),
        ("2026-01-05T03:00:00Z", False),
        ("2031-01-01T03:00:00Z", True),
    ],
)
async def test_a_last_time_of_a_clock_that_was_ahead_does_not_count(
    declared: Namespace, last: str, made: bool
) -> None:
    body = put(
        declared, "ScheduledDataValidation", "nightly", {"schedule": "0 3 * * *", "template": ZONE}
    )
    schedules(declared).seen({**body, "status": {"lastScheduleTime": last}})
    await schedules(declared).reconcile("nightly", at("2026-01-05T03:00:01"))

    assert bool(runs(declared)) == made


async def test_a_run_that_ended_while_no_operator_looked_holds_none_back(
    declared: Namespace,
) -> None:
    spec = {"schedule": "0 3 * * *", "template": ZONE}
    body = put(declared, "ScheduledDataValidation", "nightly", spec)
    first = schedules(declared)
    first.seen(body)
    await first.reconcile("nightly", at("2026-01-05T03:00:01"))
    [made] = runs(declared)
    await declared.restart()
    name, uid = (declared.api.objects[made]["metadata"][each] for each in ("name", "uid"))
    declared.controller.run_gone(Kind.VALIDATION, name, uid)  # not seen yet
    declared.api.objects[made]["status"] = {"phase": "Finished", "verdict": "Agree"}
    other = schedules(declared)
    other.seen(declared.api.objects[declared.path("ScheduledDataValidation", "nightly")])
    await other.reconcile("nightly", at("2026-01-06T03:00:01"))

    assert len(runs(declared)) == 2
    assert status(declared)["message"] == "2026-01-06T03:00:00Z: run"
    assert status(declared)["active"] == [status(declared)["lastRun"]]


async def test_an_object_of_another_with_the_name_of_a_run_is_not_taken_for_it(
    declared: Namespace,
) -> None:
    name = f"nightly-{int(at('2026-01-05T03:00:00').timestamp()) // 60}"
    put(declared, "DataValidation", name, ZONE["spec"])
    found = schedules(declared)
    spec = {"schedule": "0 3 * * *", "template": ZONE}
    found.seen(put(declared, "ScheduledDataValidation", "nightly", spec))
    await found.reconcile("nightly", at("2026-01-05T03:00:01"))

    told = status(declared)
    said = f"2026-01-05T03:00:00Z: not run: DataValidation {name} of another is there"
    assert told["message"] == said
    assert "lastRun" not in told
    assert "active" not in told


async def test_a_run_that_exists_is_not_told_as_missed(declared: Namespace) -> None:
    """The operator that created it ended before it said so."""
    spec = {"schedule": "0 3 * * *", "template": ZONE}
    body = put(declared, "ScheduledDataValidation", "nightly", spec)
    schedules(declared).seen(body)
    await schedules(declared).reconcile("nightly", at("2026-01-05T03:00:01"))
    await declared.restart()
    schedules(declared).seen(body)

    await schedules(declared).reconcile("nightly", at("2026-01-05T09:00:00"))

    assert status(declared)["message"] == "2026-01-05T03:00:00Z: run"


async def test_a_schedule_that_is_suspended_has_no_next_time(declared: Namespace) -> None:
    spec = {"schedule": "0 3 * * *", "template": ZONE, "suspend": True}
    found = schedules(declared)
    found.seen(put(declared, "ScheduledDataValidation", "nightly", spec))

    await found.reconcile("nightly", at("2026-01-05T03:00:01"))

    assert "nextScheduleTime" not in status(declared)
    assert status(declared)["message"] == "2026-01-05T03:00:00Z: not run: suspended"


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("at 12 on each day", "schedule at 12 on each day cannot be read"),
        ("at noon", "spec.schedule is at noon: write five fields"),
        ("*/20 * * * * *", "spec.schedule is */20 * * * * *: write five fields"),
    ],
)
async def test_what_cannot_be_read_is_told(declared: Namespace, schedule: str, said: str) -> None:
    spec = {"schedule": schedule, "template": ZONE}
    found = schedules(declared)
    found.seen(put(declared, "ScheduledDataValidation", "nightly", spec))

    assert await found.reconcile("nightly", DUE) is None
    [condition] = status(declared)["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", "False")
    assert said in condition["message"]
    assert runs(declared) == []


async def test_the_controller_runs_what_a_schedule_creates_and_removes_old_runs(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("books")
    await declared.until_available("books")
    spec = {"schedule": "* * * * *", "template": ZONE, "successfulRunsHistoryLimit": 1}
    owner = {
        "kind": "ScheduledDataValidation",
        "name": "nightly",
        "uid": "uid-of-nightly",
        "controller": True,
    }
    for number, owners in ((1, [owner]), (2, [owner]), (0, [])):  # run-0 is a person's copy
        finished = {
            "phase": "Finished",
            "verdict": "Agree",
            "completionTime": "2026-01-05T00:10:00Z",
        }
        labels = {"quorate.io/schedule": "nightly"}
        body = put(declared, "DataValidation", f"run-{number}", ZONE["spec"], status=finished)
        more = {"labels": labels, "ownerReferences": owners}
        declared.show({**body, "metadata": {**body["metadata"], **more}})
    declared.show(put(declared, "ScheduledDataValidation", "nightly", spec))

    await until(lambda: status(declared).get("lastRun") is not None, "a run")
    made = declared.api.objects[declared.path("DataValidation", status(declared)["lastRun"])]
    assert made["spec"] == ZONE["spec"]
    await until(
        lambda: declared.path("DataValidation", "run-1") not in declared.api.objects, "removal"
    )
    for kept in ("run-0", "run-2"):
        assert declared.path("DataValidation", kept) in declared.api.objects
