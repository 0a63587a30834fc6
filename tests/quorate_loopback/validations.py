"""DataValidations of a test whose API is in memory, and how their Jobs end."""

from collections.abc import Mapping
from typing import Any

import msgspec

from quorate.wire.jobs.validation_result import (
    Outvoted,
    ValidationMode,
    ValidationResult,
    ValidationVerdict,
    encode_result,
)
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until

Json = dict[str, Any]
AGREE = ValidationResult(ValidationVerdict.AGREE, {}, 16, 48, settled_keys=7)
IDLE = msgspec.structs.replace(AGREE, mode=ValidationMode.IDLE)
DIFFER = ValidationResult(
    ValidationVerdict.DIFFER,
    {"value": 2, "expiry": 1},
    16,
    48,
    settled_keys=7,
    differing_keys=3,
    outvoted=(Outvoted(5, "agent-3", ("agent-1", "agent-2")),),
)
UNPROVEN = ValidationResult(ValidationVerdict.COULD_NOT_TELL, reasons=("agent-2 is silent",))
ENDS = {ValidationVerdict.AGREE: 0, ValidationVerdict.DIFFER: 1}


def declare(led: Namespace, name: str, zone: str = "books", **spec: Any) -> None:
    led.declare("DataValidation", name, zoneRef={"name": zone}, **spec)


def status(led: Namespace, name: str) -> Json:
    return dict(led.api.objects[led.path("DataValidation", name)].get("status", {}))


async def until_phase(led: Namespace, name: str, phase: str) -> Json:
    await until(lambda: status(led, name).get("phase") == phase, f"{phase}: {name}")
    return status(led, name)


def job_path(name: str) -> str:
    return f"/apis/batch/v1/namespaces/default/jobs/{name}-validation"


def job(led: Namespace, name: str) -> Json:
    return led.api.objects[job_path(name)]


def jobs(led: Namespace) -> list[str]:
    return [path for path in led.api.objects if "/jobs/" in path]


def pod_ended(led: Namespace, name: str, index: int, terminated: Mapping[str, Any]) -> None:
    """Play the kubelet: a pod of the Job has ended like this."""
    made = job(led, name)
    owner = {"kind": "Job", "uid": f"uid-of-job-{name}", "name": made["metadata"]["name"]}
    metadata = {
        "name": f"{name}-validation-{index}",
        "labels": made["spec"]["template"]["metadata"]["labels"],
        "ownerReferences": [owner],
    }
    ended = {"finishedAt": f"2026-01-01T00:00:0{index}Z", **terminated}
    containers = [{"name": "validation", "state": {"terminated": ended}}]
    body = {"metadata": metadata, "status": {"containerStatuses": containers, "phase": "Failed"}}
    led.api.put(f"/api/v1/namespaces/default/pods/{metadata['name']}", body)


def job_ended(led: Namespace, name: str, kind: str = "Failed", reason: str = "") -> None:
    """Play the Job's controller."""
    made = job(led, name)
    metadata = {**made["metadata"], "uid": f"uid-of-job-{name}"}
    conditions = [{"type": kind, "status": "True", "reason": reason}]
    led.api.put(
        job_path(name), {**made, "metadata": metadata, "status": {"conditions": conditions}}
    )


def finish(led: Namespace, name: str, result: ValidationResult) -> None:
    code = ENDS.get(result.verdict, 2)
    message = encode_result(result).decode()
    pod_ended(led, name, 0, {"exitCode": code, "message": message})
    job_ended(led, name, "Failed" if code else "Complete")


async def finished(led: Namespace, name: str, result: ValidationResult) -> Json:
    declare(led, name)
    await until_phase(led, name, "Running")
    finish(led, name, result)
    return await until_phase(led, name, "Finished")


async def until_condition(led: Namespace, wanted: str) -> Json:
    def found() -> Json:
        conditions = led.api.objects[led.path("Zone", "books")]["status"]["conditions"]
        return next((each for each in conditions if each["type"] == "CopiesAgree"), {})

    await until(lambda: found().get("status") == wanted, f"CopiesAgree {wanted}")
    return found()
