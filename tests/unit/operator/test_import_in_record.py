"""An import is in the zone's record until it has ended well, whatever becomes of its Zone."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from quorate.facts.zone import ZoneRecord
from quorate.wire.jobs.export_result import ExportResult, RunOutcome, encode_export_result
from quorate.wire.partition_table import AcceptedZone, ZoneRef, accepted_zone, zone_record
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.led_cluster import LedCluster
from quorate_spark import __main__ as program

Json = dict[str, Any]
NOTE = "quorate.io/restoring"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MAY_BEGIN = ExportResult(RunOutcome.COMPLETE, "0011aabb")
COMPLETE = ExportResult(RunOutcome.COMPLETE, "0011aabb", 20, 300, "f" * 32)


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
    metadata = {**made["metadata"], "uid": uid}
    led.api.put(
        f"{JOBS}/{job}", {**made, "metadata": metadata, "status": {"conditions": conditions}}
    )


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
    led.controller.run_gone(Kind.RESTORE, "back")
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


async def test_an_import_waits_for_a_backup_and_no_backup_begins_beside_it(
    led: Namespace,
) -> None:
    declare(led, "ZoneBackup", "nightly")
    await until_job(led, "nightly-backup")
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", MAY_BEGIN)
    said = "ZoneBackup nightly of the same zone is waited for"
    await until_so(led, lambda: status(led)["message"] == said, said)
    assert f"{JOBS}/back-restore" not in led.api.objects
    declare(led, "ZoneBackup", "late")
    await until_so(
        led, lambda: "has begun" in status(led, "late", "ZoneBackup").get("message", ""), "it waits"
    )
    assert f"{JOBS}/late-backup" not in led.api.objects

    end(led, "nightly-backup", COMPLETE, "backup")
    await until_job(led, "back-restore")


async def test_a_backup_beside_which_an_import_began_is_not_called_good(led: Namespace) -> None:
    """A person has noted it."""
    declare(led, "ZoneBackup", "nightly")
    await until_job(led, "nightly-backup")
    led.zone("books", {NOTE: "/backups/sunday#44556677.x"})
    end(led, "nightly-backup", COMPLETE, "backup")
    await until_so(
        led, lambda: status(led, "nightly", "ZoneBackup").get("phase") == "Finished", "its end"
    )
    told = status(led, "nightly", "ZoneBackup")

    assert told["outcome"] == "Failed"
    assert "while it ran, an import of /backups/sunday into Zone books has begun" in told["message"]


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
