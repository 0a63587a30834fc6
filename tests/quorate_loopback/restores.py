"""Steps that tests of ZoneRestores share: declare, play the pods, wait for the next Job."""

import time
from collections.abc import Callable
from typing import Any

from quorate.wire.exports.export_result import ExportResult, RunOutcome, encode_export_result
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.process.clock import rfc3339

Json = dict[str, Any]
MAY_BEGIN = ExportResult(RunOutcome.COMPLETE, "0011aabb")
COMPLETE = ExportResult(
    RunOutcome.COMPLETE, "0011aabb", 20, 300, "f" * 32, keys_kept=0, rows_expired=0
)
FAILED = ExportResult(RunOutcome.FAILED, reason="zone books is not empty")
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NOTE = "quorate.io/restoring"
COMPONENT = "app.kubernetes.io/component"


def declare(led: Namespace, name: str = "back", path: str = "monday", **spec: Any) -> None:
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": path}}
    led.declare("ZoneRestore", name, zoneRef={"name": "books"}, source=source, **spec)


def status(led: Namespace, name: str = "back") -> Json:
    return dict(led.api.objects[led.path("ZoneRestore", name)].get("status", {}))


async def until_job(led: Namespace, job: str, name: str = "back") -> list[str]:
    """Wait until it runs by this Job; return the arguments of its pod."""
    await until_so(led, lambda: status(led, name).get("job") == job, job)
    [container] = led.api.objects[f"{JOBS}/{job}"]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def running(led: Namespace, path: str) -> bool:
    """Return whether the object at this path runs."""
    return bool(led.api.objects[path].get("status", {}).get("phase") == "Running")


async def until_finished(led: Namespace, name: str = "back") -> Json:
    await until_so(
        led, lambda: status(led, name).get("phase") in ("Finished", "Refused"), "its end"
    )
    return status(led, name)


def show(led: Namespace) -> None:
    """Show the Zone if it is there, as the watch does."""
    body = led.api.objects.get(led.path("Zone", "books"))
    if body is not None:
        led.show(body)


async def until_so(led: Namespace, is_so: Callable[[], bool], what: str) -> None:
    """Wait until it is so; the watch shows the Zone whenever its status is written."""

    def shown() -> bool:
        show(led)
        return is_so()

    await until(shown, what)


def note(led: Namespace) -> str:
    metadata = led.api.objects[led.path("Zone", "books")]["metadata"]
    return str(metadata.get("annotations", {}).get(NOTE, ""))


def end(
    led: Namespace,
    job: str,
    *messages: str,
    reason: str = "",
    watched: bool = True,
    ago_s: float = 0,
) -> None:
    """Play the kubelet and the Job's controller: pods that told this, then the end of the Job.

    `watched`: the watch of Zones has shown all changes.  `ago_s`: the Job has ended then.
    """
    if watched:
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
        led.api.put(
            path,
            {"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": containers}},
        )
    metadata = {**made["metadata"], "uid": uid}
    at = rfc3339(int((time.time() - ago_s) * 1000))
    failed = {"type": "Failed", "status": "True", "reason": reason, "lastTransitionTime": at}
    status = {"conditions": [failed]}
    led.api.put(f"{JOBS}/{job}", {**made, "metadata": metadata, "status": status})


def text(result: ExportResult) -> str:
    return encode_export_result(result).decode()


async def until_message(led: Namespace, said: str, name: str = "back") -> None:
    await until_so(led, lambda: said in status(led, name).get("message", ""), said)


async def until_import(led: Namespace, name: str = "back") -> None:
    """Run its check: its second Job is made."""
    await until_job(led, f"{name}-check", name)
    end(led, f"{name}-check", text(MAY_BEGIN))
    await until_job(led, f"{name}-restore", name)


def put_job(led: Namespace, name: str, owner: str) -> None:
    """Put a Job of another operator, or of another object."""
    owners = [{"kind": "ZoneRestore", "uid": owner, "name": "back"}]
    metadata = {"name": name, "uid": "uid-of-a-job", "ownerReferences": owners}
    led.api.put(f"{JOBS}/{name}", {"metadata": metadata})
