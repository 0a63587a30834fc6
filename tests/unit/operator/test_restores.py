"""ZoneRestores: a Job that looks, a note at the Zone, a Job that imports; all is in memory."""

from typing import Any

import pytest

from quorate.wire.jobs.export_result import ExportResult, RunOutcome, encode_export_result
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared.runs import job_runs
from quorate_spark import __main__ as program

Json = dict[str, Any]
MAY_BEGIN = ExportResult(RunOutcome.COMPLETE, "0011aabb")
COMPLETE = ExportResult(RunOutcome.COMPLETE, "0011aabb", 20, 300, "f" * 32)
FAILED = ExportResult(RunOutcome.FAILED, reason="zone books is not empty")
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NOTE = "quorate.io/restoring"


@pytest.fixture
async def led(declared: Namespace, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Zone `books` is served."""
    monkeypatch.setattr(job_runs, "FOLLOW_S", 0.02)
    declared.start()
    declared.zone("books")
    await declared.until_available("books")
    show(declared)
    return declared


def declare(led: Namespace, name: str = "back", **spec: Any) -> None:
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    led.declare("ZoneRestore", name, zoneRef={"name": "books"}, source=source, **spec)


def status(led: Namespace, name: str = "back") -> Json:
    return dict(led.api.objects[led.path("ZoneRestore", name)].get("status", {}))


async def until_job(led: Namespace, job: str, name: str = "back") -> list[str]:
    """Wait until it runs by this Job; return the arguments of its pod."""
    await until(lambda: status(led, name).get("job") == job, job)
    [container] = led.api.objects[f"{JOBS}/{job}"]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


async def until_finished(led: Namespace, name: str = "back") -> Json:
    await until(lambda: status(led, name).get("phase") in ("Finished", "Refused"), "its end")
    return status(led, name)


def show(led: Namespace) -> None:
    """Show the Zone, as the watch does."""
    led.show(led.api.objects[led.path("Zone", "books")])


def note(led: Namespace) -> str:
    metadata = led.api.objects[led.path("Zone", "books")]["metadata"]
    return str(metadata.get("annotations", {}).get(NOTE, ""))


def end(led: Namespace, job: str, *messages: str) -> None:
    """Play the kubelet and the Job's controller: pods that told this, then the end of the Job."""
    show(led)
    made, uid = led.api.objects[f"{JOBS}/{job}"], f"uid-of-{job}"
    for index, message in enumerate(messages):
        metadata = {
            "name": f"{job}-{index}",
            "labels": made["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{"kind": "Job", "uid": uid, "name": job}],
        }
        ended = {"finishedAt": f"2026-01-01T00:00:0{index}Z", "exitCode": 1, "message": message}
        containers = [{"name": "restore", "state": {"terminated": ended}}]
        path = f"/api/v1/namespaces/default/pods/{job}-{index}"
        led.api.put(path, {"metadata": metadata, "status": {"containerStatuses": containers}})
    metadata = {**made["metadata"], "uid": uid}
    conditions = [{"type": "Failed", "status": "True"}]
    status = {"conditions": conditions}
    led.api.put(f"{JOBS}/{job}", {**made, "metadata": metadata, "status": status})


def text(result: ExportResult) -> str:
    return encode_export_result(result).decode()


async def test_it_looks_notes_the_import_and_imports(led: Namespace) -> None:
    declare(led)
    look = await until_job(led, "back-check")
    assert note(led) == ""
    end(led, "back-check", text(MAY_BEGIN))
    work = await until_job(led, "back-restore")
    assert note(led) == "backups:monday#0011aabb.uid-of-back"
    show(led)
    await until(lambda: led.conditions("books").get("Available") == "False", "it is not whole")
    end(led, "back-restore", "Killed", text(COMPLETE))
    told = await until_finished(led)

    assert (told["outcome"], told["rows"], told["digest"]) == ("Complete", 20, "f" * 32)
    assert note(led) == ""
    options = program._parser().parse_args(look)
    assert (options.check, options.continues, options.into_non_empty) == (True, False, False)
    options = program._parser().parse_args(work)
    assert (options.check, options.continues, options.export_id) == (False, True, "0011aabb")
    assert options.target == "/exports/monday"


async def test_nothing_is_noted_where_it_may_not_begin(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", text(FAILED), text(FAILED))
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert told["message"] == f"nothing is imported from backups:monday: {FAILED.reason}"
    assert note(led) == ""
    assert f"{JOBS}/back-restore" not in led.api.objects


@pytest.mark.parametrize(
    ("messages", "outcome"),
    [((text(FAILED),) * 2, "Failed"), (("Killed", "Killed"), "Unknown"), ((), "Unknown")],
)
async def test_a_part_is_never_available_and_another_one_goes_on(
    led: Namespace, messages: tuple[str, ...], outcome: str
) -> None:
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN))
    await until_job(led, "back-restore")
    end(led, "back-restore", *messages)
    told = await until_finished(led)
    assert told["outcome"] == outcome
    assert "create another ZoneRestore of the same source" in told["message"]
    assert note(led) != ""

    declare(led, "again")
    options = program._parser().parse_args(await until_job(led, "again-check", "again"))
    assert (options.continues, options.export_id) == (True, "0011aabb")
    end(led, "again-check", text(MAY_BEGIN))
    await until_job(led, "again-restore", "again")
    assert note(led) == "backups:monday#0011aabb.uid-of-again"
    end(led, "again-restore", text(COMPLETE))

    assert (await until_finished(led, "again"))["outcome"] == "Complete"
    assert note(led) == ""


async def test_an_import_of_another_place_is_not_mixed_with_it(led: Namespace) -> None:
    led.zone("books", {NOTE: "/backups/sunday#44556677.x"})
    show(led)
    declare(led)
    told = await until_finished(led)

    assert told["phase"] == "Refused"
    assert "an import of /backups/sunday has begun and is not done" in told["message"]
    assert note(led) == "/backups/sunday#44556677.x"


async def test_one_that_began_meanwhile_is_not_mixed_with_it(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    led.zone("books", {NOTE: "backups:monday#44556677.x"})
    end(led, "back-check", text(MAY_BEGIN))
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert "another export" in told["message"]
    assert note(led) == "backups:monday#44556677.x"


async def test_a_zone_that_has_become_whole_meanwhile_is_left_alone(led: Namespace) -> None:
    led.zone("books", {NOTE: "backups:monday#0011aabb.x"})
    show(led)
    declare(led)
    await until_job(led, "back-check")
    led.zone("books")
    end(led, "back-check", text(MAY_BEGIN))
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert "another import has ended well meanwhile" in told["message"]
    assert note(led) == ""


async def test_another_master_goes_on_after_each_step(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    await led.restart()
    end(led, "back-check", text(MAY_BEGIN))
    await until_job(led, "back-restore")
    await led.restart()
    end(led, "back-restore", text(COMPLETE))

    assert (await until_finished(led))["outcome"] == "Complete"
    assert note(led) == ""
