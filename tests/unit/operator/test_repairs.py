"""ZoneRepairs: each is one Job, whose end is told; API, agents and pods are in memory."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from quorate.protocol.messages.events import Event
from quorate.wire.jobs.repair_result import RepairOutcome, RepairResult, encode_repair_result
from quorate_loopback.namespace import Namespace
from quorate_loopback.noted_events import note_events
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.kube.api import ApiRefused

Json = dict[str, Any]
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "one"}}
DIGEST = "0a" * 32
DRY = {"strategy": "LWW", "destination": CLAIM}
QUOTED = {"plan": {"source": CLAIM, "digest": DIGEST}, "dryRun": False}
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PLANNED = RepairResult(RepairOutcome.PLANNED, DIGEST, {"write": 2, "remove": 1})
REPAIRED = RepairResult(RepairOutcome.REPAIRED, DIGEST, {"write": 3}, {"repaired": 3})
INCOMPLETE = RepairResult(
    RepairOutcome.INCOMPLETE, DIGEST, {"write": 3}, {"repaired": 1, "changed": 2}
)
FAILED = RepairResult(RepairOutcome.FAILED, reasons=("the bucket is not there",))
UNTOUCHED = msgspec.structs.replace(FAILED, untouched=True)
WITH_PLAN = msgspec.structs.replace(UNTOUCHED, digest=DIGEST, planned={"write": 3})
VALIDATE = "kubectl quorate validate books --namespace default"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Events about repairs."""
    return note_events(monkeypatch, "Repair")


def declare(led: Namespace, name: str = "first", **spec: Any) -> None:
    led.declare("ZoneRepair", name, zoneRef={"name": "books"}, **spec)


def status(led: Namespace, name: str = "first", kind: str = "ZoneRepair") -> Json:
    return dict(led.api.objects[led.path(kind, name)].get("status", {}))


async def until_so(led: Namespace, is_so: Callable[[], bool], what: str) -> None:
    """Wait until it is so; the watch shows the Zone whenever its status is written."""

    def shown() -> bool:
        zone = led.api.objects.get(led.path("Zone", "books"))
        if zone is not None:
            led.show(zone)
        return is_so()

    await until(shown, what)


async def until_phase(
    led: Namespace, phase: str, name: str = "first", kind: str = "ZoneRepair"
) -> Json:
    await until_so(led, lambda: status(led, name, kind).get("phase") == phase, phase)
    return status(led, name, kind)


def end(
    led: Namespace, *messages: str, reason: str = "", failed: int = 0, name: str = "first"
) -> None:
    """Play the kubelet and the Job's controller: pods that told this, then the end of the Job."""
    path, uid = f"{JOBS}/{name}-repair", f"uid-of-{name}-repair"
    job = led.api.objects[path]
    for index, message in enumerate(messages):
        metadata = {
            "name": f"{name}-repair-{index}",
            "labels": job["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{"kind": "Job", "uid": uid, "name": f"{name}-repair"}],
        }
        ended = {"finishedAt": f"2026-01-01T00:00:0{index}Z", "exitCode": 2, "message": message}
        containers = [{"name": "repair", "state": {"terminated": ended}}]
        pod = {"phase": "Failed", "containerStatuses": containers}
        at = f"/api/v1/namespaces/default/pods/{metadata['name']}"
        led.api.put(at, {"metadata": metadata, "status": pod})
    conditions = [{"type": "Failed", "status": "True", "reason": reason}]
    metadata = {**job["metadata"], "uid": uid}
    ended_so = {"conditions": conditions, "failed": failed}
    led.api.put(path, {**job, "metadata": metadata, "status": ended_so})


def text(result: RepairResult) -> str:
    return encode_repair_result(result).decode()


async def test_a_plan_is_told_with_its_digest_and_the_command_that_executes_it(
    led: Namespace, told: list[Event]
) -> None:
    declare(led, **DRY)
    running = await until_phase(led, "Running")
    end(led, "Killed", text(PLANNED))
    done = await until_phase(led, "Finished")

    assert (running["job"], running["place"]) == ("first-repair", "backups:one")
    assert (done["outcome"], done["planDigest"]) == ("Planned", DIGEST)
    assert done["planned"] == {"write": 2, "remove": 1}
    assert "keys" not in done
    command = "kubectl quorate repair books --execute first --namespace default"
    assert done["message"].startswith("3 keys differ (remove 1, write 2), and nothing is changed")
    assert done["message"].endswith(command)
    assert [(each["type"], each["reason"]) for each in done["conditions"]] == [
        ("Finished", "Planned")
    ]
    assert [(each.reason, each.kind) for each in told] == [("RepairPlanned", "Normal")]


async def test_a_plan_that_was_read_is_executed(led: Namespace, told: list[Event]) -> None:
    declare(led, **QUOTED)
    await until_phase(led, "Running")
    [container] = led.api.objects[f"{JOBS}/first-repair"]["spec"]["template"]["spec"]["containers"]
    end(led, text(REPAIRED))
    done = await until_phase(led, "Finished")

    assert {"--execute", f"--digest={DIGEST}"} <= {*container["args"]}
    assert (done["outcome"], done["keys"]) == ("Repaired", {"repaired": 3})
    assert done["message"].startswith("all 3 keys of the plan are repaired")
    assert done["message"].endswith(VALIDATE)
    assert [(each.reason, each.kind) for each in told] == [("Repaired", "Normal")]


@pytest.mark.parametrize(
    ("spec", "messages", "more", "outcome", "said", "event"),
    [
        (QUOTED, (text(INCOMPLETE),), {}, "Incomplete", "1 of 3 keys", "RepairIncomplete"),
        (
            QUOTED,
            (text(UNTOUCHED),) * 2,
            {"failed": 2},
            "Failed",
            "nothing is changed, and no plan",
            "RepairFailed",
        ),
        # A pod of which nothing is left is not counted if it was lost with its node.
        (QUOTED, (text(FAILED),), {"failed": 1}, "Unknown", "the bucket is not", "RepairUnknown"),
        (QUOTED, ("Killed", text(UNTOUCHED)), {}, "Failed", "nothing is changed", "RepairFailed"),
        (QUOTED, (text(UNTOUCHED), "Killed"), {}, "Unknown", "may be repaired", "RepairUnknown"),
        (
            QUOTED,
            (text(WITH_PLAN),),
            {"failed": 1},
            "Failed",
            "nothing is changed; the plan with 3 keys is in backups:one",
            "RepairFailed",
        ),
        (QUOTED, ("Killed", "Killed"), {}, "Unknown", "may be repaired, or not", "RepairUnknown"),
        (QUOTED, ("Killed", text(FAILED)), {}, "Unknown", "the bucket is not", "RepairUnknown"),
        (QUOTED, (text(UNTOUCHED),), {"failed": 2}, "Unknown", "the bucket is", "RepairUnknown"),
        (QUOTED, ("Killed", text(REPAIRED)), {}, "Repaired", VALIDATE, "Repaired"),
        (QUOTED, (), {"reason": "DeadlineExceeded"}, "Unknown", "deadlineSeconds", "RepairUnknown"),
        (DRY, ("Killed", text(FAILED)), {}, "Failed", "the bucket is not there", "RepairFailed"),
        (DRY, ("Killed", "Killed"), {}, "Unknown", "nothing is changed", "RepairUnknown"),
    ],
)
async def test_another_end_is_called_what_is_known_of_it(
    led: Namespace,
    told: list[Event],
    spec: Json,
    messages: tuple[str, ...],
    more: Json,
    outcome: str,
    said: str,
    event: str,
) -> None:
    declare(led, **spec)
    await until_phase(led, "Running")
    end(led, *messages, **more)
    done = await until_phase(led, "Finished")

    assert done["outcome"] == outcome
    assert said in done["message"]
    assert [each.reason for each in told] == [event]


async def test_one_run_writes_at_a_time_and_dry_runs_do_not_wait(led: Namespace) -> None:
    declare(led, **QUOTED)
    await until_phase(led, "Running")
    declare(led, "second", **QUOTED)
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    led.declare("ZoneRestore", "back", zoneRef={"name": "books"}, source=source)
    declare(led, "look", **DRY)
    waiting = await until_phase(led, "Waiting", "second")
    restore = await until_phase(led, "Waiting", "back", "ZoneRestore")
    await until_phase(led, "Running", "look")

    assert waiting["message"] == "ZoneRepair first of the same zone is waited for"
    assert restore["message"] == "ZoneRepair first of the same zone is waited for"
    assert f"{JOBS}/second-repair" not in led.api.objects
    assert f"{JOBS}/back-check" not in led.api.objects


async def test_it_waits_for_a_restore_and_for_pods_of_deleted_runs(led: Namespace) -> None:
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    led.declare("ZoneRestore", "back", zoneRef={"name": "books"}, source=source)
    await until_phase(led, "Running", "back", "ZoneRestore")
    declare(led, **QUOTED)
    waiting = await until_phase(led, "Waiting")
    assert waiting["message"] == "ZoneRestore back of the same zone is waited for"

    pod = "/api/v1/namespaces/default/pods/gone-repair-1"
    labels = {"app.kubernetes.io/component": "repair", "quorate.io/zone-uid": "uid-of-books"}
    led.api.put(pod, {"metadata": {"name": "gone-repair-1", "labels": labels}})
    led.controller.run_gone(Kind.RESTORE, "back", "uid-of-back")
    del led.api.objects[led.path("ZoneRestore", "back")]
    said = "pod gone-repair-1 of another ZoneRepair is waited for"
    await until_so(led, lambda: status(led)["message"] == said, said)
    del led.api.objects[pod]
    await until_phase(led, "Running")


async def test_a_result_that_was_read_outlives_its_job(led: Namespace) -> None:
    declare(led, **QUOTED)
    await until_phase(led, "Running")
    led.zone("books", {"quorate.io/paused": "true"})
    end(led, "Killed", text(REPAIRED))
    await until(lambda: "paused" in status(led)["message"], "it waits")
    del led.api.objects[f"{JOBS}/first-repair"]
    await led.restart()
    led.zone("books")

    assert (await until_phase(led, "Finished"))["outcome"] == "Repaired"


async def test_it_waits_while_rows_are_imported(led: Namespace) -> None:
    led.zone("books", {"quorate.io/restoring": "backups:sunday#0011aabb.x"})
    declare(led, **DRY)
    waiting = await until_phase(led, "Waiting")

    assert "an import of backups:sunday into Zone books has begun" in waiting["message"]
    led.zone("books")
    await until_phase(led, "Running")


async def test_a_zone_that_was_replaced_leaves_it_unknown(led: Namespace) -> None:
    declare(led, **QUOTED)
    await until_phase(led, "Running")
    job = led.api.objects[f"{JOBS}/first-repair"]
    job["metadata"]["labels"]["quorate.io/zone-uid"] = "uid-of-an-earlier-one"
    end(led, text(REPAIRED))
    done = await until_phase(led, "Finished")

    assert done["outcome"] == "Unknown"
    assert "Zone books was replaced by another one meanwhile" in done["message"]
    assert "(as far as is known: repaired 3)" in done["message"]
    assert (done["planDigest"], done["keys"]) == (DIGEST, {"repaired": 3})


async def test_restores_go_on_without_the_kind(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CRD is not there, or it may not be listed."""
    listed = led.api.list

    def refused(path: str, *more: Any) -> Any:
        if path.endswith("/zonerepairs"):
            raise ApiRefused(404, "NotFound", "no such kind")
        return listed(path, *more)

    monkeypatch.setattr(led.api, "list", refused)
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    led.declare("ZoneRestore", "back", zoneRef={"name": "books"}, source=source)
    await until_phase(led, "Running", "back", "ZoneRestore")
