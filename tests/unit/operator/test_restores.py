"""ZoneRestores: a Job that looks, a note at the Zone, a Job that imports; all is in memory."""

from typing import Any

import msgspec
import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.restores import (
    COMPLETE,
    COMPONENT,
    FAILED,
    JOBS,
    MAY_BEGIN,
    NOTE,
    Json,
    declare,
    end,
    note,
    put_job,
    show,
    status,
    text,
    until_finished,
    until_import,
    until_job,
    until_message,
    until_so,
)
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs import job_runs
from quorate_operator.kube.api import ApiRefused
from quorate_spark import __main__ as program


@pytest.fixture(autouse=True)
def shown(led: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zone `books` is served, and its object is seen as stored; refusals are soon tried again."""
    monkeypatch.setattr(job_runs, "REFUSED_S", 0.02)
    show(led)


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
    assert (told["keysKept"], told["rowsExpired"]) == (0, 0)
    assert told["message"] == "the zone has all rows of backups:monday: 20 were compared"
    assert note(led) == ""
    options = program._parser().parse_args(look)
    assert (options.check, options.continues, options.into_non_empty) == (True, False, False)
    options = program._parser().parse_args(work)
    assert (options.check, options.continues, options.export_id) == (False, True, "0011aabb")
    assert options.target == "/exports/monday"


async def test_rows_that_the_zone_has_not_are_counted(led: Namespace) -> None:
    declare(led, intoNonEmpty=True)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN))
    await until_job(led, "back-restore")
    end(led, "back-restore", text(msgspec.structs.replace(COMPLETE, keys_kept=7, rows_expired=2)))
    told = await until_finished(led)

    assert (told["rows"], told["keysKept"], told["rowsExpired"]) == (20, 7, 2)
    assert told["message"] == (
        "the zone has 20 rows of backups:monday as exported, which were compared; 7 keys had"
        " another row, which stayed, and 2 rows had expired"
    )


async def test_counts_that_a_pod_of_an_earlier_version_does_not_tell_are_not_0(
    led: Namespace,
) -> None:
    declare(led, intoNonEmpty=True)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN))
    await until_job(led, "back-restore")
    earlier = msgspec.structs.replace(COMPLETE, keys_kept=None, rows_expired=None)
    end(led, "back-restore", text(earlier))
    told = await until_finished(led)

    assert (told["outcome"], told["rows"]) == ("Complete", 20)
    assert "keysKept" not in told
    assert "rowsExpired" not in told
    assert "all rows" not in told["message"]
    assert "of an earlier version" in told["message"]


async def test_both_pods_have_the_key_of_an_encrypted_export(led: Namespace) -> None:
    declare(led, encryptionKeySecretRef={"name": "keys"})
    look = await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN))
    work = await until_job(led, "back-restore")
    end(led, "back-restore", text(msgspec.structs.replace(COMPLETE, encryption_key_id="a1b2")))
    told = await until_finished(led)

    for job, arguments in (("back-check", look), ("back-restore", work)):
        [container] = led.api.objects[f"{JOBS}/{job}"]["spec"]["template"]["spec"]["containers"]
        [variable] = container["env"]
        assert variable["name"] == "QUORATE_EXPORT_KEY"
        assert variable["valueFrom"] == {"secretKeyRef": {"name": "keys", "key": "key"}}
        assert program._parser().parse_args(arguments).encrypted
    assert told["encryptionKeyId"] == "a1b2"


async def test_one_that_is_deleted_as_it_begins_is_no_defect(led: Namespace) -> None:
    pods, before = "/api/v1/namespaces/default/pods", led.api.refuse

    def deleted(method: str, path: str) -> int:
        if (method, path) == ("GET", pods):
            led.controller._runs.gone(Kind.RESTORE, "back")
            led.api.refuse = before
        return before(method, path)

    led.api.refuse = deleted
    declare(led)

    await until_so(led, lambda: f"{JOBS}/back-check" in led.api.objects, "its Job")
    assert not led.controller._refused


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
    assert "an import of /backups/sunday into Zone books has begun" in told["message"]
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


async def test_a_second_one_of_a_zone_waits_for_the_first(led: Namespace) -> None:
    """Its check would be from before the import of the first."""
    declare(led)
    declare(led, "other", "tuesday")
    await until_import(led)
    await until_message(led, "ZoneRestore back of the same zone is waited for", "other")
    await led.restart()
    assert f"{JOBS}/other-check" not in led.api.objects
    end(led, "back-restore", text(COMPLETE))

    assert (await until_finished(led))["outcome"] == "Complete"
    show(led)
    await until_job(led, "other-check", "other")


async def test_a_pod_of_a_deleted_one_is_waited_for(led: Namespace) -> None:
    labels = {"quorate.io/zone-uid": "uid-of-books", COMPONENT: "restore"}
    path = "/api/v1/namespaces/default/pods/before-restore-1"
    pod: Json = {"metadata": {"name": "before-restore-1", "labels": labels}}
    led.api.put(path, {**pod, "status": {"phase": "Running"}})
    declare(led)
    await until_message(led, "pod before-restore-1 of another ZoneRestore is waited for")
    assert f"{JOBS}/back-check" not in led.api.objects

    led.api.put(path, {**pod, "status": {"phase": "Failed"}})
    await until_job(led, "back-check")


async def test_its_own_pod_is_not_waited_for(led: Namespace) -> None:
    """An operator has ended after it made the Job, and before it told so."""
    put_job(led, "back-check", "uid-of-back")
    labels = {"quorate.io/zone-uid": "uid-of-books", COMPONENT: "restore"}
    owners = [{"kind": "Job", "uid": "uid-of-a-job", "name": "back-check"}]
    metadata = {"name": "back-check-1", "labels": labels, "ownerReferences": owners}
    led.api.put("/api/v1/namespaces/default/pods/back-check-1", {"metadata": metadata})
    declare(led)

    await until_so(led, lambda: status(led).get("job") == "back-check", "it follows its Job")


@pytest.mark.parametrize(
    ("uid", "zone", "name"),
    [
        # Of one of the same name that was deleted.
        ("uid-of-books", "books", "back-restore"),
        # Of an earlier Zone, whose data was kept.
        ("uid-of-an-earlier-one", "books", "before-restore"),
    ],
)
async def test_a_pod_of_a_predecessor_is_waited_for(
    led: Namespace, uid: str, zone: str, name: str
) -> None:
    labels = {"quorate.io/zone-uid": uid, COMPONENT: "restore", "quorate.io/restore": "back"}
    owners = [{"kind": "Job", "uid": "uid-of-a-job", "name": name}]
    put_job(led, name, "uid-of-a-predecessor")
    path = f"/api/v1/namespaces/default/pods/{name}-1"
    metadata = {"name": f"{name}-1", "labels": labels, "ownerReferences": owners}
    spec = {"containers": [{"name": "proxy"}, {"name": "restore", "args": ["import", zone]}]}
    led.api.put(path, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    others: dict[str, Json] = {
        "of-another-zone": {"name": "restore", "args": ["import", "songs"]},
        "without-arguments": {"name": "restore"},
        "of-other-work": {"name": "proxy", "args": ["import", zone]},
    }
    for other, container in others.items():
        marked = {**labels, "quorate.io/zone-uid": "uid-of-songs"}
        body: Json = {"metadata": {**metadata, "name": other, "labels": marked}}
        at = f"/api/v1/namespaces/default/pods/{other}"
        led.api.put(at, {**body, "spec": {"containers": [container]}})
    declare(led)
    await until_message(led, f"pod {name}-1 of another ZoneRestore is waited for")
    assert f"{JOBS}/back-check" not in led.api.objects

    del led.api.objects[path]
    await until_job(led, "back-check")


async def test_a_zone_that_was_replaced_gets_no_rows(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    led.zone("books", uid="uid-of-another")
    end(led, "back-check", text(MAY_BEGIN))
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert "Zone books was replaced by another one meanwhile" in told["message"]
    assert note(led) == ""
    assert f"{JOBS}/back-restore" not in led.api.objects


async def test_a_zone_that_was_replaced_is_not_called_whole(led: Namespace) -> None:
    declare(led)
    await until_import(led)
    led.zone("books", uid="uid-of-another")
    end(led, "back-restore", text(COMPLETE))
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert "Zone books was replaced by another one meanwhile" in told["message"]
    assert "deletionPolicy: Delete" in told["message"]


@pytest.mark.parametrize("messages", [(text(COMPLETE),), (text(FAILED),)])
async def test_it_ends_with_its_zone(led: Namespace, messages: tuple[str, ...]) -> None:
    declare(led)
    await until_import(led)
    show(led)
    end(led, "back-restore", *messages)
    del led.api.objects[led.path("Zone", "books")]
    led.controller.zone_gone("books", "uid-of-books")
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert "Zone books was deleted meanwhile" in told["message"]


async def test_what_it_waits_for_after_the_import_is_said(led: Namespace) -> None:
    declare(led)
    await until_import(led)
    led.zone("books", {"quorate.io/paused": "true", NOTE: note(led)})
    end(led, "back-restore", text(COMPLETE))
    await until_message(led, "paused")
    assert status(led)["phase"] == "Running"

    led.zone("books", {NOTE: note(led)})
    assert (await until_finished(led))["outcome"] == "Complete"


async def test_a_result_that_was_read_outlives_its_job(led: Namespace) -> None:
    declare(led)
    await until_import(led)
    noted = {NOTE: note(led)}
    led.zone("books", {"quorate.io/paused": "true", **noted})
    end(led, "back-restore", text(COMPLETE))
    await until_message(led, "paused")
    del led.api.objects[f"{JOBS}/back-restore"]
    await led.restart()
    led.zone("books", noted)

    assert (await until_finished(led))["outcome"] == "Complete"


async def test_a_late_job_has_told_nothing(led: Namespace) -> None:
    """Its first pod failed, the second one was deleted while it wrote."""
    declare(led)
    await until_import(led)
    end(led, "back-restore", text(FAILED), reason="DeadlineExceeded")
    told = await until_finished(led)

    assert told["outcome"] == "Unknown"
    assert "deadlineSeconds" in told["message"]


async def test_an_import_whose_job_is_refused_for_now_is_tried_again(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    led.api.refuse = lambda method, path: 403 if (method, path) == ("POST", JOBS) else 0
    end(led, "back-check", text(MAY_BEGIN))
    await until_message(led, "its Job is refused")
    assert status(led)["phase"] == "Running"
    assert note(led) != ""

    show(led)
    led.api.refuse = lambda method, path: 0
    await until_job(led, "back-restore")


@pytest.mark.parametrize(
    ("run", "outcome", "left"), [("uid-of-back", "Complete", False), ("another", "Failed", True)]
)
async def test_a_watch_that_is_late_decides_nothing(
    led: Namespace, monkeypatch: pytest.MonkeyPatch, run: str, outcome: str, left: bool
) -> None:
    """It shows the Zone as it was before any import was noted."""
    declare(led)
    await until_import(led)
    path, annotate, refused = led.path("Zone", "books"), led.api.annotate, list[str]()

    async def counted(*given: Any) -> Json:
        try:
            return await annotate(*given)
        except ApiRefused as error:
            refused.append(str(error))
            raise

    monkeypatch.setattr(led.api, "annotate", counted)
    body = led.api.objects[path]
    led.show({**body, "metadata": {**body["metadata"], "annotations": {}}})
    noted = {**body["metadata"], "annotations": {NOTE: f"backups:monday#0011aabb.{run}"}}
    led.api.put(path, {**body, "metadata": noted})
    end(led, "back-restore", text(COMPLETE), watched=False)
    await until(lambda: bool(refused) or "outcome" in status(led), "a decision")
    assert "outcome" not in status(led)

    assert (await until_finished(led))["outcome"] == outcome
    assert (note(led) != "") == left


@pytest.mark.parametrize(
    ("annotations", "said"),
    [(None, "it may be Available"), ({NOTE: "backups:monday#0011aabb.x"}, "is not Available")],
)
async def test_it_is_only_called_not_available_where_a_note_says_so(
    led: Namespace, annotations: Json | None, said: str
) -> None:
    declare(led)
    await until_import(led)
    led.zone("books", annotations)
    end(led, "back-restore", text(FAILED))

    assert said in (await until_finished(led))["message"]


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
