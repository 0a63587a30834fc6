"""ZoneBackups: each is one Job, whose end is told; API, agents and pods are in memory."""

from typing import Any

import msgspec
import pytest

from quorate.protocol.messages.events import Event
from quorate.wire.exports.export_result import ExportResult, RunOutcome, encode_export_result
from quorate_loopback.namespace import Namespace
from quorate_loopback.noted_events import note_events
from quorate_loopback.waiting import until

Json = dict[str, Any]
COMPLETE = ExportResult(RunOutcome.COMPLETE, "0011aabb", 20, 300, "f" * 32)
FAILED = ExportResult(RunOutcome.FAILED, reason="the bucket is not there", absent=True)
UNSEEN = msgspec.structs.replace(FAILED, absent=False)
DAMAGED = ExportResult(RunOutcome.FAILED, reason="it is not as it was", damaged=True)
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
JOB = "/apis/batch/v1/namespaces/default/jobs/first-backup"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Events about exports."""
    return note_events(monkeypatch, "Export")


def declare(led: Namespace, destination: Json = CLAIM, zone: str = "books") -> None:
    led.declare("ZoneBackup", "first", zoneRef={"name": zone}, destination=destination)


async def until_phase(led: Namespace, phase: str) -> Json:
    def status() -> Json:
        led.show(led.api.objects[led.path("Zone", "books")])  # the watch is up to date
        return dict(led.api.objects[led.path("ZoneBackup", "first")].get("status", {}))

    await until(lambda: status().get("phase") == phase, phase)
    return status()


def end(led: Namespace, *messages: str, reason: str = "", failed: int = 0) -> None:
    """Play the kubelet and the Job's controller: pods that told this, then the end of the Job.

    `failed`: pods that the Job counts, some of which may be gone.
    """
    job = led.api.objects[JOB]
    uid = "uid-of-the-job"
    for index, message in enumerate(messages):
        metadata = {
            "name": f"first-backup-{index}",
            "labels": job["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{"kind": "Job", "uid": uid, "name": "first-backup"}],
        }
        finished = f"2026-01-01T00:00:0{index}Z"
        ended = {"finishedAt": finished, "exitCode": 2, "message": message}
        status = {"containerStatuses": [{"name": "backup", "state": {"terminated": ended}}]}
        path = f"/api/v1/namespaces/default/pods/{metadata['name']}"
        led.api.put(path, {"metadata": metadata, "status": status})
    conditions = [{"type": "Failed", "status": "True", "reason": reason}]
    metadata = {**job["metadata"], "uid": uid}
    ended_job = {"conditions": conditions, "failed": failed}
    led.api.put(JOB, {**job, "metadata": metadata, "status": ended_job})


def text(result: ExportResult) -> str:
    return encode_export_result(result).decode()


async def test_a_job_exports_the_zone_that_is_named(led: Namespace) -> None:
    declare(led)
    running = await until_phase(led, "Running")

    assert (running["job"], running["place"]) == ("first-backup", "backups:monday")
    [container] = led.api.objects[JOB]["spec"]["template"]["spec"]["containers"]
    wanted = {"export", "books", "--cluster=main", "--target=/exports/monday", "--partitions=16"}
    assert wanted <= {*container["args"]}
    assert any('"partitions":16' in each for each in container["args"])


@pytest.mark.parametrize(
    ("kind", "place", "job"),
    [("ZoneBackup", "destination", "first-backup"), ("ZoneRestore", "source", "first-check")],
)
async def test_a_pod_knows_agents_that_are_away_when_its_job_is_made(
    led: Namespace, kind: str, place: str, job: str
) -> None:
    """One that restarts then is asked as soon as it answers: it may be a primary by then."""
    addresses = led.addresses()
    await led.world.agents["agent-3"].die()
    await until(lambda: led.online("books") == 2, "one is away")

    led.declare(kind, "first", zoneRef={"name": "books"}, **{place: CLAIM})
    path = f"/apis/batch/v1/namespaces/default/jobs/{job}"

    def is_made() -> bool:
        led.show(led.api.objects[led.path("Zone", "books")])  # the watch is up to date
        return path in led.api.objects

    await until(is_made, "its Job")

    [container] = led.api.objects[path]["spec"]["template"]["spec"]["containers"]
    [agents] = [each for each in container["args"] if each.startswith("--agents=")]
    assert agents == f"--agents={','.join(sorted(addresses))}"


async def test_a_secret_without_the_key_is_told(led: Namespace) -> None:
    """As the kubelet says it; it does not start the pod."""
    ref = {"name": "keys", "key": "of-june"}
    led.declare(
        "ZoneBackup",
        "first",
        zoneRef={"name": "books"},
        destination=CLAIM,
        encryptionKeySecretRef=ref,
    )
    await until_phase(led, "Running")
    job = led.api.objects[JOB]
    metadata = {**job["metadata"], "uid": "uid-of-the-job"}
    led.api.put(JOB, {**job, "metadata": metadata})
    said = "couldn't find key of-june in Secret default/keys"
    waiting = {"reason": "CreateContainerConfigError", "message": said}
    owner = {"kind": "Job", "uid": "uid-of-the-job", "name": "first-backup"}
    pod = {
        "name": "first-backup-0",
        "labels": job["spec"]["template"]["metadata"]["labels"],
        "ownerReferences": [owner],
    }
    status = {"containerStatuses": [{"name": "backup", "state": {"waiting": waiting}}]}
    led.api.put(
        "/api/v1/namespaces/default/pods/first-backup-0", {"metadata": pod, "status": status}
    )

    def message() -> str:
        body = led.api.objects[led.path("ZoneBackup", "first")]
        return str(body.get("status", {}).get("message", ""))

    await until(lambda: said in message(), "it is told")
    assert "CreateContainerConfigError" in message()


async def test_an_encrypted_export_is_told_with_the_id_of_its_key(
    led: Namespace, told: list[Event]
) -> None:
    encrypted = msgspec.structs.replace(COMPLETE, digest="", encryption_key_id="a1b2")
    declare(led)
    await until_phase(led, "Running")
    end(led, text(encrypted))
    status = await until_phase(led, "Finished")

    assert (status["encryptionKeyId"], status.get("digest", "")) == ("a1b2", "")
    assert "to backups:monday, encrypted with key a1b2, and were read back" in status["message"]
    assert "encrypted with key a1b2" in told[0].message


async def test_an_incremental_export_tells_what_was_read_whole(
    led: Namespace, told: list[Event]
) -> None:
    made = msgspec.structs.replace(
        COMPLETE,
        base="00aa",
        partitions_from_base=14,
        partitions_read_whole=2,
        read_whole="the log is short (2)",
    )
    declare(led)
    await until_phase(led, "Running")
    end(led, text(made))
    status = await until_phase(led, "Finished")

    assert (status["base"], status["partitionsFromBase"], status["partitionsReadWhole"]) == (
        "00aa",
        14,
        2,
    )
    said = "14 of 16 partitions are made of an earlier export and of updates since; 2 were read"
    assert f"{said} whole: the log is short (2)" in status["message"]
    assert said in told[0].message


async def test_a_whole_export_is_told_with_its_figures(led: Namespace, told: list[Event]) -> None:
    declare(led)
    await until_phase(led, "Running")
    end(led, "Killed", text(COMPLETE))
    status = await until_phase(led, "Finished")

    assert (status["outcome"], status["rows"], status["bytes"]) == ("Complete", 20, 300)
    assert (status["exportId"], status["digest"]) == (COMPLETE.export_id, COMPLETE.digest)
    assert "partitionsFromBase" not in status
    assert "partitions" not in status["message"]
    assert [each["type"] for each in status["conditions"]] == ["Finished"]
    assert [(each.reason, each.kind) for each in told] == [("Exported", "Normal")]
    assert "backups:monday" in told[0].message


@pytest.mark.parametrize(
    ("messages", "reason", "outcome", "said", "event"),
    [
        ((text(FAILED),) * 2, "", "Failed", "the bucket is not there", "ExportFailed"),
        (("Killed", "Killed"), "", "Unknown", "exit code 2", "ExportUnknown"),
        ((), "DeadlineExceeded", "Unknown", "deadlineSeconds (21600)", "ExportUnknown"),
        ((text(COMPLETE), text(FAILED)), "", "Complete", "were read back", "Exported"),
        ((text(COMPLETE), text(DAMAGED)), "", "Failed", "it is not as it was", "ExportFailed"),
        ((text(FAILED), "Killed"), "", "Unknown", "exit code 2", "ExportUnknown"),
        ((text(FAILED),), "DeadlineExceeded", "Unknown", "deadlineSeconds", "ExportUnknown"),
        ((text(COMPLETE),), "DeadlineExceeded", "Complete", "were read back", "Exported"),
    ],
)
async def test_another_end_is_called_what_is_known_of_it(
    led: Namespace,
    told: list[Event],
    messages: tuple[str, ...],
    reason: str,
    outcome: str,
    said: str,
    event: str,
) -> None:
    declare(led)
    await until_phase(led, "Running")
    end(led, *messages, reason=reason)
    status = await until_phase(led, "Finished")

    assert status["outcome"] == outcome
    assert said in status["message"]
    assert ("rows" in status) == (outcome == "Complete")
    assert [each.reason for each in told] == [event]


@pytest.mark.parametrize(
    ("message", "failed", "outcome"),
    [
        (text(FAILED), 1, "Failed"),
        (text(FAILED), 2, "Unknown"),
        (text(UNSEEN), 1, "Unknown"),
        (text(DAMAGED), 2, "Failed"),
        (text(COMPLETE), 2, "Complete"),
    ],
)
async def test_a_pod_that_is_gone_may_have_exported(
    led: Namespace, message: str, failed: int, outcome: str
) -> None:
    declare(led)
    await until_phase(led, "Running")
    end(led, message, failed=failed)
    status = await until_phase(led, "Finished")

    assert status["outcome"] == outcome
    assert ("another pod may have made one" in status["message"]) == (outcome == "Unknown")


async def test_an_end_while_the_zone_is_not_led_is_an_event_later(
    led: Namespace, told: list[Event]
) -> None:
    declare(led)
    await until_phase(led, "Running")
    led.zone("books", {"quorate.io/paused": "true"})
    end(led, text(FAILED))
    await until_phase(led, "Finished")
    assert told == []

    led.zone("books")
    await until(lambda: bool(told), "the event")
    assert [(each.zone, each.reason) for each in told] == [("uid-of-books", "ExportFailed")]


async def test_a_job_that_was_deleted_leaves_it_unknown(led: Namespace) -> None:
    declare(led)
    await until_phase(led, "Running")
    del led.api.objects[JOB]
    status = await until_phase(led, "Finished")

    assert status["outcome"] == "Unknown"
    assert "Job first-backup was deleted" in status["message"]


async def test_it_waits_for_its_zone(led: Namespace) -> None:
    declare(led, zone="songs")
    waiting = await until_phase(led, "Waiting")

    assert "there is no Zone songs in this namespace" in waiting["message"]
    assert JOB not in led.api.objects


async def test_it_waits_while_rows_are_imported(led: Namespace) -> None:
    led.zone("books", {"quorate.io/restoring": "backups:sunday#0011aabb.x"})
    declare(led)
    waiting = await until_phase(led, "Waiting")

    assert "an import of backups:sunday into Zone books has begun" in waiting["message"]
    assert JOB not in led.api.objects
    led.zone("books")
    led.show(led.api.objects[led.path("Zone", "books")])
    await until_phase(led, "Running")


async def test_one_that_cannot_be_read_is_refused(led: Namespace) -> None:
    declare(led, destination={"s3": {"url": "s3://AKIAKEY:hush@bucket/x"}})
    refused = await until_phase(led, "Refused")

    assert "destination.s3.url: write s3://BUCKET/FOLDER" in refused["message"]
    assert "hush" not in str(refused)


async def test_a_job_of_an_earlier_operator_keeps_its_time_and_its_zone(led: Namespace) -> None:
    """That operator has ended before it told of it; the Zone was declared again since."""
    declare(led)
    await until_phase(led, "Running")
    job, path = led.api.objects[JOB], led.path("ZoneBackup", "first")
    del led.api.objects[path]["status"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    container["args"] = [
        "--zone-uid=uid-of-one-before" if each.startswith("--zone-uid=") else each
        for each in container["args"]
    ]
    job["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    end(led, text(COMPLETE))
    await led.restart()
    status = await until_phase(led, "Finished")

    assert status["startTime"] == "2026-01-01T00:00:00Z"
    assert status["zoneUid"] == "uid-of-one-before"
    assert status["outcome"] == "Failed"
    assert "Zone books was replaced by another one meanwhile" in status["message"]


async def test_one_whose_zone_was_replaced_is_not_good(led: Namespace) -> None:
    """What the pod has deleted is told all the same."""
    declare(led)
    await until_phase(led, "Running")
    body = led.api.objects[led.path("ZoneBackup", "first")]
    led.show({**body, "status": {**body["status"], "zoneUid": "uid-of-one-before"}})
    end(led, text(msgspec.structs.replace(COMPLETE, deleted=("a",), kept=("b",))))
    status = await until_phase(led, "Finished")

    assert status["outcome"] == "Failed"
    assert "Zone books was replaced by another one meanwhile" in status["message"]
    assert (status["deleted"], status["kept"]) == (["a"], ["b"])


async def test_a_result_that_was_read_outlives_its_job(led: Namespace) -> None:
    """The zone is paused for longer than the Job stays; another operator leads then."""
    declare(led)
    await until_phase(led, "Running")
    led.zone("books", {"quorate.io/paused": "true"})
    end(led, "Killed", text(COMPLETE))

    def message() -> str:
        return str(led.api.objects[led.path("ZoneBackup", "first")]["status"]["message"])

    await until(lambda: "paused" in message(), "it waits")
    for path in [each for each in led.api.objects if "/jobs/" in each or "/pods/" in each]:
        del led.api.objects[path]
    await led.restart()
    led.zone("books")
    status = await until_phase(led, "Finished")

    assert (status["outcome"], status["rows"], status["exportId"]) == ("Complete", 20, "0011aabb")
    assert "jobEnd" not in status


async def test_what_each_pod_has_deleted_is_told(led: Namespace) -> None:
    """The first pod is killed while it deletes; the second one finds the export and goes on."""
    declare(led)
    await until_phase(led, "Running")
    first = msgspec.structs.replace(COMPLETE, deleted=("a",), kept=("b", "c"), half_deleted=("b",))
    second = msgspec.structs.replace(COMPLETE, deleted=("b",), kept=("c",), undeleted="c stays")
    end(led, text(first), text(second))
    status = await until_phase(led, "Finished")

    assert (status["deleted"], status["kept"]) == (["a", "b"], ["c"])
    assert "halfDeleted" not in status
    assert status["undeleted"] == "c stays"
