"""DataValidations: each is one Job, whose end is told; API, agents and pods are in memory."""

from collections.abc import Sequence

import msgspec
import pytest

from quorate.protocol.messages.events import Event
from quorate.wire.jobs.data_validation import DataValidationStatus
from quorate.wire.jobs.validation_result import (
    ValidationMode,
    ValidationResult,
    encode_result,
)
from quorate.wire.jobs.zone_history import HISTORY_VARIABLE, ExportTold, decode_history
from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.namespace import Namespace
from quorate_loopback.noted_events import note_events
from quorate_loopback.runner_world import NAMES
from quorate_loopback.validations import (
    AGREE,
    DIFFER,
    IDLE,
    UNPROVEN,
    Json,
    declare,
    finish,
    finished,
    job,
    job_ended,
    job_path,
    jobs,
    pod_ended,
    status,
    until_condition,
    until_phase,
)
from quorate_loopback.waiting import until
from quorate_operator.declared.runs import job_runs
from quorate_operator.declared.runs.validations import finished_status, sentence
from quorate_operator.kube.api import ApiRefused


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Events about copies."""
    return note_events(monkeypatch, "Copies")


async def test_a_job_compares_the_zone_that_is_named(led: Namespace) -> None:
    declare(led, "first", level="Digest")
    running = await until_phase(led, "first", "Running")

    assert running["job"] == "first-validation"
    assert running["startTime"]
    [container] = job(led, "first")["spec"]["template"]["spec"]["containers"]
    addresses = ",".join(sorted(led.addresses()))
    assert container["image"] == "quorate-spark:1"
    assert container["args"][:2] == ["validate", "books"]
    wanted = {"--cluster=main", "--level=digest", "--partitions=16", "--replicas=3"}
    assert {*wanted, f"--agents={addresses}"} <= {*container["args"]}


@pytest.mark.parametrize(
    ("result", "agrees", "reason", "kind"),
    [
        (AGREE, "True", "CopiesAgree", "Normal"),
        (DIFFER, "False", "CopiesDiffer", "Warning"),
        (UNPROVEN, "Unknown", "CopiesUnproven", "Warning"),
    ],
)
async def test_a_result_is_told_in_the_status_to_the_zone_and_as_an_event(
    led: Namespace, told: list[Event], result: ValidationResult, agrees: str, reason: str, kind: str
) -> None:
    status = await finished(led, "first", result)

    assert (status["verdict"], status["message"]) == (result.verdict, sentence(result))
    assert (status.get("classes", {}), status["copies"]) == (result.classes, result.copies)
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {"Finished": "True", "CopiesAgree": agrees}
    condition = await until_condition(led, agrees)
    assert condition["reason"] == result.verdict
    assert condition["lastTransitionTime"] == status["completionTime"]
    assert sentence(result) in condition["message"]
    assert [(each.zone, each.reason, each.kind) for each in told] == [
        ("uid-of-books", reason, kind)
    ]


def test_sentences_say_what_was_found_and_what_to_do() -> None:
    assert sentence(AGREE) == "all 48 copies of 16 partitions agree; 7 keys were compared"
    assert sentence(IDLE) == (
        "all 48 copies of 16 partitions agree; 7 keys were compared, and nothing was written"
        " meanwhile"
    )
    assert sentence(IDLE, has_keys=False) == (
        "all 48 copies of 16 partitions agree in their counters, and nothing was written meanwhile"
    )
    assert sentence(DIFFER) == (
        "copies differ (expiry 1, value 2); the others contradict the copy of partition 5 on"
        " agent-3: have it made anew by a ZoneRecovery with action Restart and erase"
    )
    assert sentence(UNPROVEN) == "could not tell whether all copies agree: agent-2 is silent"


@pytest.mark.parametrize("mode", [None, *ValidationMode])
def test_the_status_says_the_mode_of_the_result_and_not_the_one_asked_for(
    mode: ValidationMode | None,
) -> None:
    body = {"metadata": {"name": "first", "generation": 1}, "spec": {"mode": "Idle"}}
    result = msgspec.structs.replace(AGREE, mode=mode)

    status = finished_status(DataValidationStatus(), body, result, "2026-01-01T00:00:00Z")

    assert status.mode is mode
    is_idle = mode is ValidationMode.IDLE
    assert ("nothing was written meanwhile" in status.message) is is_idle
    assert all(each.message == status.message for each in status.conditions)


async def test_the_zone_has_the_latest_result_and_keeps_it(led: Namespace) -> None:
    await finished(led, "first", DIFFER)
    await until_condition(led, "False")
    later = {**status(led, "first"), "completionTime": "2999-01-01T00:00:00Z", "verdict": "Agree"}
    body = led.api.objects[led.path("DataValidation", "first")]
    metadata = {**body["metadata"], "name": "second", "uid": "uid-of-second"}
    second = {**body, "metadata": metadata, "status": later}
    led.show(led.api.put(led.path("DataValidation", "second"), second))
    condition = await until_condition(led, "True")
    assert "DataValidation second, 2999" in condition["message"]

    for name in ("first", "second"):
        del led.api.objects[led.path("DataValidation", name)]
    await led.restart()
    led.zone("books", {"a": "b"})
    await until(lambda: led.controller._zones["books"].told is not None, "told")

    assert await until_condition(led, "True") == condition


async def test_a_job_that_can_never_be_made_ends_the_validation(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create(path: str, body: Json) -> Json:
        raise ApiRefused(422, "Invalid", "resources.limits.memory: tea")

    monkeypatch.setattr(led.api, "create", create)
    declare(led, "first")

    refused = await until_phase(led, "first", "Refused")
    assert "its Job is refused" in refused["message"]
    assert "create another DataValidation" in refused["message"]


async def test_an_earlier_zone_of_this_name_has_no_say(led: Namespace) -> None:
    await finished(led, "first", DIFFER)
    await until_condition(led, "False")
    zone = led.controller._zones["books"]
    zone.body = {
        **zone.body,
        "metadata": {**zone.body["metadata"], "creationTimestamp": "2999-01-01T00:00:00Z"},
    }

    assert led.controller._runs.validations.verdict(zone) is None


@pytest.mark.parametrize("result", [AGREE, DIFFER])
@pytest.mark.parametrize(
    ("begun", "told_by_pod"),
    [
        ("uid-of-one-before", "uid-of-one-before"),
        ("uid-of-one-before", ""),
        ("uid-of-one-before", "uid-of-books"),
        ("uid-of-books", "uid-of-one-before"),
        ("", "uid-of-one-before"),
    ],
)
async def test_the_result_of_a_zone_that_was_replaced_is_none(
    led: Namespace, told: list[Event], result: ValidationResult, begun: str, told_by_pod: str
) -> None:
    declare(led, "first")
    await until_phase(led, "first", "Running")
    body = led.api.objects[led.path("DataValidation", "first")]
    assert body["status"]["zoneUid"] == "uid-of-books"
    led.show({**body, "status": {**body["status"], "zoneUid": begun}})
    finish(led, "first", msgspec.structs.replace(result, zone_uid=told_by_pod))
    ended = await until_phase(led, "first", "Finished")

    assert ended["verdict"] == "CouldNotTell"
    assert "Zone books was replaced by another one meanwhile" in ended["message"]
    assert [each.reason for each in told] == ["CopiesUnproven"]


@pytest.mark.parametrize("begun", ["uid-of-books", ""])
@pytest.mark.parametrize("told_by_pod", ["uid-of-books", ""])
async def test_the_result_of_the_zone_counts_whoever_tells_its_uid(
    led: Namespace, begun: str, told_by_pod: str
) -> None:
    declare(led, "first")
    await until_phase(led, "first", "Running")
    body = led.api.objects[led.path("DataValidation", "first")]
    led.show({**body, "status": {**body["status"], "zoneUid": begun}})
    finish(led, "first", msgspec.structs.replace(DIFFER, zone_uid=told_by_pod))
    ended = await until_phase(led, "first", "Finished")

    assert ended.get("zoneUid", "") == (begun or told_by_pod)
    await until_condition(led, "False")


async def test_no_validation_runs_twice(led: Namespace, told: list[Event]) -> None:
    before = await finished(led, "first", AGREE)
    stale = {**led.api.objects[led.path("DataValidation", "first")], "status": {"phase": "Running"}}
    del led.api.objects[job_path("first")]
    led.show(stale)
    declare(led, "second")
    await until_phase(led, "second", "Running")  # by then the stale one was looked at
    await led.restart()
    declare(led, "third")
    await until_phase(led, "third", "Running")

    assert jobs(led) == [job_path("second"), job_path("third")]
    assert status(led, "first") == before
    assert len(told) == 1


async def test_a_result_is_not_told_to_a_later_object_of_the_name(
    led: Namespace, told: list[Event]
) -> None:
    """The object was deleted and created again while the last look at its Job was under way."""
    declare(led, "first")
    await until_phase(led, "first", "Running")
    path = led.path("DataValidation", "first")
    body = led.api.objects[path]
    metadata = {**body["metadata"], "uid": "uid-of-another"}
    finish(led, "first", AGREE)
    later = led.api.put(path, {**body, "metadata": metadata, "status": {}})

    await until(lambda: not led.controller._runs.validations, "the end of the earlier one")
    assert status(led, "first") == {}
    assert led.controller._runs.validations.verdict(led.controller._zones["books"]) is None
    assert told == []

    del led.api.objects[job_path("first")]
    led.show(later)
    await until_phase(led, "first", "Running")


async def test_what_is_seen_meanwhile_of_a_later_object_stays(led: Namespace) -> None:
    runs = led.controller._runs.validations
    declare(led, "first")
    await until_phase(led, "first", "Running")
    path = led.path("DataValidation", "first")
    earlier = led.api.objects[path]
    metadata = {**earlier["metadata"], "uid": "uid-of-another"}
    runs.seen(led.api.put(path, {**earlier, "metadata": metadata, "status": {}}))

    assert not await runs._tell(earlier, DataValidationStatus(message="late"))
    assert runs._bodies["first"]["metadata"]["uid"] == "uid-of-another"


async def test_another_operator_follows_what_one_has_begun(led: Namespace) -> None:
    declare(led, "first")
    begun = await until_phase(led, "first", "Running")
    await led.restart()
    finish(led, "first", AGREE)
    told = await until_phase(led, "first", "Finished")

    assert (told["startTime"], told["verdict"]) == (begun["startTime"], "Agree")
    assert len(led.api.writes("/jobs")) == 1


async def test_a_job_that_was_made_before_the_status_was_written_is_taken(led: Namespace) -> None:
    declare(led, "first")
    await until_phase(led, "first", "Running")
    body = {**led.api.objects[led.path("DataValidation", "first")], "status": {}}
    led.api.put(led.path("DataValidation", "first"), body)
    await led.restart()
    await until_phase(led, "first", "Running")
    finish(led, "first", AGREE)

    assert (await until_phase(led, "first", "Finished"))["verdict"] == "Agree"
    assert len(jobs(led)) == 1


async def test_a_job_of_an_earlier_object_is_waited_for(led: Namespace) -> None:
    owner = {"uid": "uid-of-an-earlier"}
    metadata = {"name": "first-validation", "ownerReferences": [owner]}
    led.api.put(job_path("first"), {"metadata": metadata})
    declare(led, "first")
    waiting = await until_phase(led, "first", "Waiting")
    assert "Job first-validation of another object is still there" in waiting["message"]

    del led.api.objects[job_path("first")]

    await until_phase(led, "first", "Running")


async def test_it_waits_for_its_zone(led: Namespace) -> None:
    declare(led, "first", zone="songs")
    waiting = await until_phase(led, "first", "Waiting")
    assert "there is no Zone songs in this namespace" in waiting["message"]
    assert jobs(led) == []

    led.zone("songs")

    await until_phase(led, "first", "Running")


async def test_without_an_image_it_says_what_to_set(declared: Namespace) -> None:
    declared.validation_image = ""
    await declared.restart()
    declare(declared, "first")
    waiting = await until_phase(declared, "first", "Waiting")

    assert "validation.image.repository" in waiting["message"]


def runs_at(led: Namespace, name: str, index: int, address: str) -> None:
    """Play the kubelet and the Job's controller: a pod of the Job runs there."""
    pod_ended(led, name, index, {})
    path = f"/api/v1/namespaces/default/pods/{name}-validation-{index}"
    running = {"phase": "Running", "podIP": address}
    led.api.put(path, {**led.api.objects[path], "status": running})
    made = job(led, name)
    metadata = {**made["metadata"], "uid": f"uid-of-job-{name}"}
    led.api.put(job_path(name), {**made, "metadata": metadata, "status": {"ready": 1}})


async def test_its_pod_is_asked_how_far_it_is(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, int | None] = {"10.0.0.1": 12, "10.0.0.2": 80}

    async def percent_at(address: str) -> int | None:
        return answers[address]

    monkeypatch.setattr(job_runs, "percent_at", percent_at)
    declare(led, "first")
    await until_phase(led, "first", "Running")
    assert "percent" not in status(led, "first")

    runs_at(led, "first", 0, "10.0.0.1")
    await until(lambda: status(led, "first").get("percent") == 12, "the percentage")
    answers["10.0.0.1"] = 50
    await until(lambda: status(led, "first").get("percent") == 50, "a later percentage")
    pod_ended(led, "first", 0, {"exitCode": 2})  # another one takes over
    answers["10.0.0.1"] = None
    runs_at(led, "first", 1, "10.0.0.2")
    await until(lambda: status(led, "first").get("percent") == 80, "that of the second pod")

    finish(led, "first", AGREE)
    assert "percent" not in await until_phase(led, "first", "Finished")


async def test_one_that_cannot_be_read_is_refused(led: Namespace) -> None:
    declare(led, "first", level="Tea")
    refused = await until_phase(led, "first", "Refused")

    assert "spec.level is Tea" in refused["message"]
    assert jobs(led) == []


@pytest.mark.parametrize(
    ("terminated", "said"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "needed more memory than its limit"),
        (
            {"exitCode": 1, "message": "Traceback\nImportError: no pyspark\n"},
            "ended with exit code 1 and no result: ImportError: no pyspark",
        ),
    ],
)
async def test_an_exit_code_alone_is_no_verdict(
    led: Namespace, terminated: Json, said: str
) -> None:
    declare(led, "first")
    await until_phase(led, "first", "Running")
    pod_ended(led, "first", 0, terminated)
    job_ended(led, "first")
    told = await until_phase(led, "first", "Finished")

    assert told["verdict"] == "CouldNotTell"
    assert said in told["message"]


async def test_one_that_takes_too_long_could_not_tell(led: Namespace) -> None:
    declare(led, "first", deadlineSeconds=90)
    await until_phase(led, "first", "Running")
    job_ended(led, "first", reason="DeadlineExceeded")
    told = await until_phase(led, "first", "Finished")

    assert told["verdict"] == "CouldNotTell"
    assert "not done within deadlineSeconds (90)" in told["message"]


async def test_a_job_that_someone_deleted_could_not_tell(led: Namespace) -> None:
    declare(led, "first")
    await until_phase(led, "first", "Running")
    del led.api.objects[job_path("first")]
    told = await until_phase(led, "first", "Finished")

    assert told["verdict"] == "CouldNotTell"
    assert "was deleted before its result was read" in told["message"]


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((UNPROVEN, AGREE), "Agree"),
        ((AGREE, UNPROVEN), "CouldNotTell"),
        ((DIFFER, UNPROVEN), "Differ"),
    ],
)
async def test_of_two_pods_the_last_one_is_heard_unless_one_has_told_by(
    led: Namespace, ends: tuple[ValidationResult, ...], verdict: str
) -> None:
    declare(led, "first")
    await until_phase(led, "first", "Running")
    for index, result in enumerate(ends):
        ended = {"exitCode": 2, "message": encode_result(result).decode()}
        pod_ended(led, "first", index, ended)
    job_ended(led, "first")

    assert (await until_phase(led, "first", "Finished"))["verdict"] == verdict


@pytest.mark.parametrize("its_pod", ["is gone", "is going", "has ended"])
async def test_a_pod_that_does_not_start_is_told(
    led: Namespace, monkeypatch: pytest.MonkeyPatch, its_pod: str
) -> None:
    """Also if the operator looks after its pod was deleted, and before the Job is late."""
    looks, waiting = [0], job_runs._waiting

    def look(pods: list[Json], told: str) -> str:
        looks[0] += 1
        return waiting(pods, told)

    monkeypatch.setattr(job_runs, "_waiting", look)
    declare(led, "first")
    await until_phase(led, "first", "Running")
    pod_ended(led, "first", 0, {})
    path = "/api/v1/namespaces/default/pods/first-validation-0"
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    containers = [{"name": "validation", "state": pulling}]
    led.api.put(path, {**led.api.objects[path], "status": {"containerStatuses": containers}})
    made = job(led, "first")
    led.api.put(
        job_path("first"),
        {**made, "metadata": {**made["metadata"], "uid": "uid-of-job-first"}, "status": {}},
    )

    def said() -> str:
        return str(status(led, "first")["message"])

    await until(lambda: "ImagePullBackOff: no such image" in said(), "the pod's trouble")
    pod = led.api.objects[path]
    if its_pod == "is gone":
        del led.api.objects[path]
    elif its_pod == "is going":
        going = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        led.api.put(path, {**pod, "metadata": going, "status": {"phase": "Pending"}})
    else:
        led.api.put(path, {**pod, "status": {"phase": "Failed"}})
    before = looks[0]
    await until(lambda: looks[0] >= before + 2, "a look at the Job without a pod")
    job_ended(led, "first", reason="DeadlineExceeded")
    told = await until_phase(led, "first", "Finished")

    assert told["verdict"] == "CouldNotTell"
    assert "its pod is not running: ImagePullBackOff: no such image" in told["message"]


async def test_metrics_have_the_latest_verdict_of_each_zone(led: Namespace) -> None:
    await finished(led, "first", DIFFER)
    led.metrics.observe_verdicts(led.controller.verdicts)
    place = {"namespace": "default", "cluster": "main", "zone": "books"}

    def value(name: str, **labels: str) -> float | None:
        whole = f"quorate_operator_validation_{name}"
        return led.metrics.registry.get_sample_value(whole, {**place, **labels})

    assert value("verdict", verdict="differ") == 1
    assert value("verdict", verdict="agree") == value("verdict", verdict="could_not_tell") == 0
    assert value("differences", **{"class": "value"}) == 2
    assert value("differences", **{"class": "missing"}) == 0
    assert (value("end_timestamp_seconds") or 0) > 1.7e9


def hours_told(led: Namespace, zone: str) -> Sequence[Json]:
    """The hours of the last day in a Zone's status."""
    last_day: Json = led.api.objects[zone]["status"].get("lastDay", {})
    return tuple(last_day.get("hours", ()))


async def test_the_pod_is_told_what_the_operator_knows_of_the_zone(led: Namespace) -> None:
    metadata = {"name": "monday", "namespace": "default", "uid": "uid-of-monday"}
    backup = {
        "apiVersion": API_VERSION,
        "kind": "ZoneBackup",
        "metadata": metadata,
        "spec": {"zoneRef": {"name": "books"}},
        "status": {
            "phase": "Finished",
            "outcome": "Complete",
            "place": "backups:monday",
            "startTime": "2026-01-05T03:00:00Z",
        },
    }
    led.show(led.api.put(led.path("ZoneBackup", "monday"), backup))
    place = {"persistentVolumeClaim": {"claimName": "backups", "path": "books"}}
    template = {"spec": {"zoneRef": {"name": "books"}, "destination": place}}
    led.declare("ScheduledZoneBackup", "nightly", schedule="0 3 * * *", template=template)
    await led.world.agents[NAMES[0]].die()
    zone = led.path("Zone", "books")
    await until(
        lambda: any(hour.get("failovers", 0) > 0 for hour in hours_told(led, zone)),
        "failovers",
        20,
    )

    declare(led, "now")
    await until_phase(led, "now", "Running")

    [container] = led.api.objects[job_path("now")]["spec"]["template"]["spec"]["containers"]
    [told] = [each["value"] for each in container["env"] if each["name"] == HISTORY_VARIABLE]
    history = decode_history(told)
    assert history.last_backup == ExportTold("2026-01-05T03:00:00Z", "monday", "backups:monday")
    assert (history.last_restore, history.backups_scheduled) == (None, True)
    assert history.day is not None
    assert sum(hour.failovers for hour in history.day.hours) > 0
