"""An import is in the zone's record until it has ended well, whatever becomes of its Zone."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from quorate.facts.zone import ZoneRecord
from quorate.wire.exports.export_result import ExportResult, RunOutcome, encode_export_result
from quorate.wire.partition_table import AcceptedZone, ZoneRef, accepted_zone, zone_record
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.led_cluster import LedCluster
from quorate_operator.declared.runs import job_runs
from quorate_operator.process.clock import rfc3339
from quorate_spark import __main__ as program

Json = dict[str, Any]
NOTE = "quorate.io/restoring"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MAY_BEGIN = ExportResult(RunOutcome.COMPLETE, "0011aabb")
COMPLETE = ExportResult(RunOutcome.COMPLETE, "0011aabb", 20, 300, "f" * 32)


@pytest.fixture
def led(led: Namespace, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Refused Jobs are soon tried again."""
    monkeypatch.setattr(job_runs, "REFUSED_S", 0.02)
    return led


def declare(led: Namespace, kind: str = "ZoneRestore", name: str = "back") -> None:
    place = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    field = "source" if kind == "ZoneRestore" else "destination"
    led.declare(kind, name, zoneRef={"name": "books"}, **{field: place})


def status(led: Namespace, name: str = "back", kind: str = "ZoneRestore") -> Json:
    return dict(led.api.objects[led.path(kind, name)].get("status", {}))


async def until_so(led: Namespace, is_so: Callable[[], bool], what: str) -> None:
    """Wait until it is so; the watch shows the Zone whenever its status is written."""

    def shown() -> bool:
        led.show(led.api.objects[led.path("Zone", "books")])
        return is_so()

    await until(shown, what)


async def until_job(led: Namespace, job: str) -> list[str]:
    await until_so(led, lambda: f"{JOBS}/{job}" in led.api.objects, job)
    [container] = led.api.objects[f"{JOBS}/{job}"]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def end(led: Namespace, job: str, result: ExportResult, container: str = "restore") -> None:
    """Play the kubelet and the Job's controller: a pod that told this, then the end of the Job."""
    led.show(led.api.objects[led.path("Zone", "books")])
    made, uid = led.api.objects[f"{JOBS}/{job}"], f"uid-of-{job}"
    metadata = {
        "name": f"{job}-0",
        "labels": made["spec"]["template"]["metadata"]["labels"],
        "ownerReferences": [{"kind": "Job", "uid": uid, "name": job}],
    }
    message = encode_export_result(result).decode()
    ended = {"finishedAt": "2026-01-01T00:00:00Z", "exitCode": 0, "message": message}
    containers = [{"name": container, "state": {"terminated": ended}}]
    pod = {"phase": "Succeeded", "containerStatuses": containers}
    led.api.put(f"/api/v1/namespaces/default/pods/{job}-0", {"metadata": metadata, "status": pod})
    conditions = [{"type": "Complete", "status": "True"}]
    status = {"conditions": conditions, "completionTime": rfc3339()}
    metadata = {**made["metadata"], "uid": uid}
    led.api.put(f"{JOBS}/{job}", {**made, "metadata": metadata, "status": status})


def available(led: Namespace) -> Json:
    told = led.api.objects[led.path("Zone", "books")].get("status", {}).get("conditions", [])
    return next((each for each in told if each["type"] == "Available"), {})


async def begin_import(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", MAY_BEGIN)
    await until_job(led, "back-restore")


async def declare_again(led: Namespace) -> None:
    """The Zone is deleted, its data is kept, and another Zone of its name gets it."""
    await led.delete("books")
    led.zone("books", uid="uid-of-another")


async def test_a_zone_that_is_declared_again_during_an_import_is_not_available(
    led: Namespace,
) -> None:
    await begin_import(led)
    record = led.led("books")
    assert record is not None
    assert record.importing == "uid-of-books backups:monday#0011aabb.uid-of-back"
    await declare_again(led)
    await until_so(led, lambda: available(led).get("reason") == "Restoring", "it says so")

    told = available(led)
    assert told["status"] == "False"
    assert (
        "the ZoneRestore with the uid uid-of-back was importing backups:monday" in told["message"]
    )
    assert (
        "create a ZoneRestore of backups:monday, or delete the zone with its data"
        in (told["message"])
    )
    await led.restart()
    await until_so(led, lambda: bool(led.led("books")), "it is led by the next master")
    assert available(led)["status"] == "False"


async def test_another_restore_goes_on_and_ends_it(led: Namespace) -> None:
    await begin_import(led)
    await declare_again(led)
    await until_so(led, lambda: available(led).get("reason") == "Restoring", "it says so")
    await until_so(led, lambda: status(led).get("phase") == "Running", "not ended yet")
    del led.api.objects[led.path("ZoneRestore", "back")]
    led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
    declare(led, name="again")
    options = program._parser().parse_args(await until_job(led, "again-check"))
    assert (options.continues, options.export_id) == (True, "0011aabb")
    end(led, "again-check", MAY_BEGIN)
    await until_job(led, "again-restore")
    end(led, "again-restore", COMPLETE)
    await until_so(led, lambda: status(led, "again").get("outcome") == "Complete", "its end")
    await until_so(led, lambda: available(led).get("status") == "True", "it is whole")

    record = led.led("books")
    assert record is not None
    assert record.importing == ""


async def test_no_import_begins_before_the_record_says_so(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = LedCluster.declare_zone

    def old(self: LedCluster, zone: Any, *more: Any) -> Any:
        annotations = {k: v for k, v in zone.metadata.annotations.items() if k != NOTE}
        metadata = zone.metadata.model_copy(update={"annotations": annotations})
        return declared(self, zone.model_copy(update={"metadata": metadata}), *more)

    monkeypatch.setattr(LedCluster, "declare_zone", old)
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", MAY_BEGIN)
    said = "the import is being noted in the record of the zone"
    await until_so(led, lambda: status(led)["message"] == said, said)
    assert f"{JOBS}/back-restore" not in led.api.objects

    monkeypatch.undo()
    annotations = led.api.objects[led.path("Zone", "books")]["metadata"]["annotations"]
    led.zone("books", annotations, replicas=2)
    await until_job(led, "back-restore")


def note(led: Namespace) -> str:
    metadata = led.api.objects[led.path("Zone", "books")]["metadata"]
    return str((metadata.get("annotations") or {}).get(NOTE, ""))


def refuse_jobs(led: Namespace, code: int) -> None:
    led.api.refuse = lambda method, path: code if (method, path) == ("POST", JOBS) else 0


async def until_noted(led: Namespace) -> None:
    """The check is good and the import noted; no Job that imports can be made for now."""
    declare(led)
    await until_job(led, "back-check")
    refuse_jobs(led, 403)
    end(led, "back-check", MAY_BEGIN)
    await until_so(led, lambda: "Job is refused" in status(led).get("message", ""), "it waits")
    assert note(led) != ""


async def test_an_import_waits_for_a_backup_while_the_zone_is_available(led: Namespace) -> None:
    declare(led, "ZoneBackup", "nightly")
    await until_job(led, "nightly-backup")
    declare(led)
    said = "ZoneBackup nightly of the same zone is waited for"
    await until_so(led, lambda: status(led).get("message") == said, said)
    assert f"{JOBS}/back-check" not in led.api.objects
    end(led, "nightly-backup", COMPLETE, "backup")
    await until_job(led, "back-check")
    declare(led, "ZoneBackup", "late")
    await until_job(led, "late-backup")
    end(led, "back-check", MAY_BEGIN)
    said = "ZoneBackup late of the same zone is waited for"
    await until_so(led, lambda: status(led)["message"] == said, said)

    assert note(led) == ""
    assert available(led)["status"] == "True"
    end(led, "late-backup", COMPLETE, "backup")
    await until_job(led, "back-restore")
    assert status(led, "late", "ZoneBackup")["outcome"] == "Complete"


async def test_a_note_is_taken_back_if_a_backup_runs_all_the_same(led: Namespace) -> None:
    """Another operator has made its Job."""
    await until_noted(led)
    late = {
        "metadata": {"name": "late", "uid": "uid-of-late"},
        "spec": {"zoneRef": {"name": "books"}},
        "status": {"phase": "Running"},
    }
    led.api.put(led.path("ZoneBackup", "late"), late)
    said = "ZoneBackup late of the same zone is waited for"
    await until_so(led, lambda: status(led)["message"] == said and not note(led), said)
    await until_so(led, lambda: available(led).get("status") == "True", "it is whole")
    del led.api.objects[led.path("ZoneBackup", "late")]
    refuse_jobs(led, 0)
    await until_job(led, "back-restore")
    assert note(led) != ""


@pytest.mark.parametrize("way", ["lost", "refused", "deleted", "told late", "replaced"])
async def test_a_note_goes_with_a_restore_that_ends_before_its_import(
    led: Namespace, way: str
) -> None:
    await until_noted(led)
    if way == "lost":  # it has expired
        del led.api.objects[f"{JOBS}/back-check"]
    elif way == "refused":
        refuse_jobs(led, 422)
    else:
        body = led.api.objects.pop(led.path("ZoneRestore", "back"))
        restores = led.controller._runs.restores
        if way == "told late":  # there is another status to be written
            restores._bodies["back"] = {**body, "status": {**body["status"], "message": ""}}
            gone = "that it is not there"
            await until_so(led, lambda: "back" not in restores._bodies, gone)
        if way == "replaced":  # its end is told behind the later one of its name
            metadata = {**body["metadata"], "uid": "another"}
            spec = {**body["spec"], "zoneRef": {"name": "others"}}
            led.controller.run_seen(Kind.RESTORE, {**body, "metadata": metadata, "spec": spec})
        led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
    await until_so(led, lambda: not note(led), "the note is removed")
    await until_so(led, lambda: available(led).get("status") == "True", "it is whole")
    if way in ("lost", "refused"):
        await until_so(led, lambda: status(led)["phase"] == "Finished", "its end")
        assert status(led)["message"].startswith("nothing is imported from backups:monday: ")


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_note_goes_with_a_restore_that_is_deleted_as_the_operator_starts(
    led: Namespace, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """`is_seen`: the next operator has seen the object, and has not looked at it yet."""
    monkeypatch.setattr(job_runs, "REFUSED_S", 60)
    await until_noted(led)
    body = led.api.objects.pop(led.path("ZoneRestore", "back"))
    await led.restart()
    if is_seen:
        led.controller.run_seen(Kind.RESTORE, body)
        led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
    await until_so(led, lambda: not note(led), "the note is removed")
    await until_so(led, lambda: available(led).get("status") == "True", "it is whole")


async def test_the_next_operator_goes_on_with_an_import_that_was_noted(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "REFUSED_S", 60)
    await until_noted(led)
    assert note(led) == "backups:monday#0011aabb.uid-of-back.not-begun"
    await led.restart()
    refuse_jobs(led, 0)
    await until_job(led, "back-restore")
    assert note(led) == "backups:monday#0011aabb.uid-of-back"


async def test_the_note_of_a_deleted_restore_stays_if_its_import_may_have_begun(
    led: Namespace,
) -> None:
    await begin_import(led)
    del led.api.objects[led.path("ZoneRestore", "back")]
    del led.api.objects[f"{JOBS}/back-restore"]
    await led.restart()
    await until_so(led, lambda: bool(led.led("books")), "it is led by the next master")
    declare(led, "ZoneBackup", "late")
    await until_so(
        led, lambda: "has begun" in status(led, "late", "ZoneBackup").get("message", ""), "it waits"
    )

    assert note(led) == "backups:monday#0011aabb.uid-of-back"


BEGUN = "backups:monday#0011aabb.uid-of-back"


def change_zone(led: Namespace) -> None:
    """Another write of its status, as by another task of the operator."""
    led.api.put(led.path("Zone", "books"), led.api.objects[led.path("Zone", "books")])


async def until_note_goes_with_its_restore(led: Namespace) -> None:
    del led.api.objects[led.path("ZoneRestore", "back")]
    led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
    await until_so(led, lambda: not note(led), "the note is removed")


@pytest.mark.parametrize("code", [403, 404, 422, 429])
async def test_a_note_goes_back_if_its_job_is_refused_while_the_zone_changes(
    led: Namespace, code: int
) -> None:
    notes = list[str]()

    def refuse(method: str, path: str) -> int:
        if (method, path) != ("POST", JOBS):
            return 0
        change_zone(led)
        notes.append(note(led))
        return code

    declare(led)
    await until_job(led, "back-check")
    led.api.refuse = refuse
    end(led, "back-check", MAY_BEGIN)
    left = "" if code == 422 else f"{BEGUN}.not-begun"
    await until_so(led, lambda: bool(notes) and note(led) == left, "it is noted as before")

    assert {*notes} == {BEGUN}
    await until_note_goes_with_its_restore(led)


async def test_a_note_that_cannot_go_back_at_once_goes_later(led: Namespace) -> None:
    zone, refused = led.path("Zone", "books"), list[str]()

    def refuse(method: str, path: str) -> int:
        if (method, path) == ("POST", JOBS) or (method == "PATCH" and path == zone and refused):
            refused.append(path)
            return 429
        return 0

    declare(led)
    await until_job(led, "back-check")
    led.api.refuse = refuse
    end(led, "back-check", MAY_BEGIN)
    await until_so(led, lambda: zone in refused, "the note stays")
    assert note(led) == BEGUN
    led.api.refuse = lambda method, path: 0
    await until_note_goes_with_its_restore(led)


async def test_a_note_goes_back_if_whose_its_job_is_is_seen_late(led: Namespace) -> None:
    """Another object's Job has the name, and looking at it fails once."""
    posted, failed = list[str](), list[str]()
    theirs = {"metadata": {"name": "back-restore", "uid": "theirs", "ownerReferences": []}}

    def refuse(method: str, path: str) -> int:
        if (method, path) == ("POST", JOBS):
            posted.append(path)
            led.api.put(f"{JOBS}/back-restore", theirs)
            return 0
        if method == "GET" and path == f"{JOBS}/back-restore" and posted and not failed:
            failed.append(note(led))
            return 500
        return 0

    declare(led)
    await until_job(led, "back-check")
    led.api.refuse = refuse
    end(led, "back-check", MAY_BEGIN)
    await until_so(
        led, lambda: bool(failed) and note(led) == f"{BEGUN}.not-begun", "it is noted as before"
    )

    assert failed == [BEGUN]


async def test_a_note_that_waits_for_its_zone_does_not_hold_up_the_next_restore_of_its_name(
    led: Namespace,
) -> None:
    await until_noted(led)
    led.zone("books", {"quorate.io/paused": "true", NOTE: note(led)})
    led.zone("others")
    for path in (led.path("ZoneRestore", "back"), f"{JOBS}/back-check"):
        del led.api.objects[path]
    led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
    refuse_jobs(led, 0)
    place = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    led.declare("ZoneRestore", "back", uid="another", zoneRef={"name": "others"}, source=place)

    def is_made() -> bool:
        led.show(led.api.objects[led.path("Zone", "others")])
        return f"{JOBS}/back-check" in led.api.objects

    await until_so(led, is_made, "its Job")
    assert note(led) == f"{BEGUN}.not-begun"

    led.zone("books", {NOTE: note(led)})
    await until_so(led, lambda: not note(led), "the note is removed")


@pytest.mark.parametrize("way", ["lost", "deleted"])
async def test_the_note_of_an_earlier_import_stays(led: Namespace, way: str) -> None:
    led.zone("books", {NOTE: "backups:monday#0011aabb.earlier"})
    await until_noted(led)
    if way == "lost":
        del led.api.objects[f"{JOBS}/back-check"]
        await until_so(led, lambda: status(led)["phase"] == "Finished", "its end")
        message = status(led)["message"]
        assert "Zone books is still noted as not whole" in message
        assert "kubectl annotate zone books quorate.io/restoring- --namespace default" in message
    else:
        del led.api.objects[led.path("ZoneRestore", "back")]
        led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
        declare(led, "ZoneBackup", "late")
        await until_so(
            led, lambda: "has begun" in status(led, "late", "ZoneBackup").get("message", ""), "it"
        )
    assert note(led) == "backups:monday#0011aabb.uid-of-back"


async def test_a_check_that_is_lost_after_its_import_was_made_changes_nothing(
    led: Namespace,
) -> None:
    """An operator has ended after it made the Job, and before it told so."""
    await begin_import(led)
    path = led.path("ZoneRestore", "back")
    led.api.objects[path]["status"]["job"] = "back-check"
    del led.api.objects[path]["status"]["exportId"]
    del led.api.objects[f"{JOBS}/back-check"]
    await led.restart()
    await until_so(led, lambda: status(led)["job"] == "back-restore", "it follows the import")
    end(led, "back-restore", COMPLETE)
    await until_so(led, lambda: status(led).get("outcome") == "Complete", "its end")
    assert note(led) == ""


async def test_no_backup_begins_beside_an_import(led: Namespace) -> None:
    await begin_import(led)
    declare(led, "ZoneBackup", "late")
    await until_so(
        led, lambda: "has begun" in status(led, "late", "ZoneBackup").get("message", ""), "it waits"
    )
    assert f"{JOBS}/late-backup" not in led.api.objects


async def test_a_backup_beside_which_an_import_began_is_not_called_good(led: Namespace) -> None:
    """A person has noted it."""
    declare(led, "ZoneBackup", "nightly")
    await until_job(led, "nightly-backup")
    led.zone("books", {NOTE: "/backups/sunday#44556677.x"})
    deleted = msgspec.structs.replace(COMPLETE, deleted=("a",), undeleted="b is in use")
    end(led, "nightly-backup", deleted, "backup")
    await until_so(
        led, lambda: status(led, "nightly", "ZoneBackup").get("phase") == "Finished", "its end"
    )
    told = status(led, "nightly", "ZoneBackup")

    assert told["outcome"] == "Failed"
    assert "while it ran, an import of /backups/sunday into Zone books has begun" in told["message"]
    assert (told["exportId"], told["rows"]) == (COMPLETE.export_id, COMPLETE.rows)
    assert (told["deleted"], told["undeleted"]) == (["a"], "b is in use")


@pytest.mark.parametrize(
    ("began", "ended", "outcome"),
    [("T02", "T04", "Failed"), ("T02", "T03", "Complete"), ("T08", "T09", "Complete")],
)
async def test_a_backup_is_not_good_if_an_import_ran_beside_it(
    led: Namespace, began: str, ended: str, outcome: str
) -> None:
    """The import has ended, and its note is removed."""
    declare(led, "ZoneBackup", "nightly")
    await until_job(led, "nightly-backup")
    path = led.path("ZoneRestore", "back")
    zone_ref = {"zoneRef": {"name": "books"}}
    metadata = {"name": "back", "uid": "uid-of-back"}
    led.api.put(path, {"metadata": metadata, "spec": zone_ref, "status": {"phase": "Finished"}})
    metadata = {
        "name": "back-restore",
        "creationTimestamp": began,
        "ownerReferences": [{"kind": "ZoneRestore", "name": "back", "uid": "uid-of-back"}],
    }
    led.api.put(f"{JOBS}/back-restore", {"metadata": metadata, "status": {"completionTime": ended}})
    job = led.api.objects[f"{JOBS}/nightly-backup"]
    job["metadata"]["creationTimestamp"] = "T03"
    end(led, "nightly-backup", COMPLETE, "backup")
    job = led.api.objects[f"{JOBS}/nightly-backup"]
    job["status"]["completionTime"] = "T08"
    await until_so(
        led, lambda: status(led, "nightly", "ZoneBackup").get("phase") == "Finished", "its end"
    )

    assert status(led, "nightly", "ZoneBackup")["outcome"] == outcome


async def test_a_backup_is_not_judged_before_its_zone_is_led(led: Namespace) -> None:
    declare(led, "ZoneBackup", "nightly")
    await until_job(led, "nightly-backup")
    led.zone("books", {"quorate.io/paused": "true"})
    end(led, "nightly-backup", COMPLETE, "backup")
    await until_so(
        led, lambda: "paused" in status(led, "nightly", "ZoneBackup")["message"], "it waits"
    )
    assert status(led, "nightly", "ZoneBackup")["phase"] == "Running"

    led.zone("books")
    await until_so(
        led, lambda: status(led, "nightly", "ZoneBackup").get("outcome") == "Complete", "its end"
    )


def test_a_build_of_before_ignores_the_field_and_later_ones_read_its_records() -> None:
    record = ZoneRecord("id", "books", 4, 2, importing="uid-1 backups:monday#a.b")
    stored = accepted_zone(record)

    assert zone_record(ZoneRef(name="books", uid="id"), stored) == record
    body = stored.model_dump(mode="json", by_alias=True)
    del body["importing"]
    older = AcceptedZone.model_validate(body)
    assert zone_record(ZoneRef(name="books", uid="id"), older).importing == ""
    told = msgspec.msgpack.encode(msgspec.to_builtins(record)[:-1])
    assert msgspec.msgpack.decode(told, type=ZoneRecord) == msgspec.structs.replace(
        record, importing=""
    )
