"""A proven difference outlives its object and its operator."""

from typing import Any

import pytest

from quorate.wire.jobs.data_validation import ValidationLevel
from quorate.wire.jobs.validation_result import (
    ValidationResult,
    ValidationVerdict,
)
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.zone import ZoneStatus
from quorate_loopback.namespace import Namespace
from quorate_loopback.validations import (
    AGREE,
    DIFFER,
    UNPROVEN,
    Json,
    declare,
    finish,
    finished,
    until_condition,
    until_phase,
)
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Key, Kind
from quorate_operator.declared.runs.validations import ZoneVerdict


@pytest.mark.parametrize(
    ("verdict", "level", "counts"),
    [
        (ValidationVerdict.COULD_NOT_TELL, ValidationLevel.ROWS, False),
        (ValidationVerdict.AGREE, ValidationLevel.COUNTERS, False),
        (ValidationVerdict.AGREE, ValidationLevel.DIGEST, True),
        (ValidationVerdict.AGREE, ValidationLevel.ROWS, True),
        (ValidationVerdict.DIFFER, ValidationLevel.COUNTERS, False),
        (ValidationVerdict.DIFFER, ValidationLevel.DIGEST, True),
    ],
)
def test_a_proven_difference_counts_until_copies_are_found_equal(
    verdict: ValidationVerdict, level: ValidationLevel, counts: bool
) -> None:
    differ = ZoneVerdict("1", "a", ValidationVerdict.DIFFER, "", {}, ValidationLevel.DIGEST)
    assert ZoneVerdict("2", "b", verdict, "", {}, level).replaces(differ) is counts
    assert ZoneVerdict("2", "b", verdict, "", {}, level).replaces(None)


@pytest.mark.parametrize(
    ("began", "counts"),
    [("2", False), ("5", True), ("6", True), ("", True)],
)
def test_copies_that_were_read_before_a_difference_was_proven_do_not_settle_it(
    began: str, counts: bool
) -> None:
    differ = ZoneVerdict("5", "a", ValidationVerdict.DIFFER, "", {}, ValidationLevel.DIGEST)
    agree = ZoneVerdict("7", "b", ValidationVerdict.AGREE, "", {}, began=began)

    assert agree.replaces(differ) is counts


async def test_a_difference_outlives_the_object_that_has_proven_it(led: Namespace) -> None:
    await finished(led, "first", DIFFER)
    before = await until_condition(led, "False")
    led.controller.run_gone(Kind.VALIDATION, "first", "uid-of-first")
    await finished(led, "second", UNPROVEN)
    led.zone("books", {"a": "b"})
    await until(lambda: led.controller._zones["books"].told is not None, "told")

    assert await until_condition(led, "False") == before


async def ended(led: Namespace, name: str, result: ValidationResult, **spec: Any) -> Json:
    declare(led, name, **spec)
    await until_phase(led, name, "Running")
    finish(led, name, result)
    return await until_phase(led, name, "Finished")


def verdicts(led: Namespace) -> list[tuple[str, str]]:
    """The results that metrics show: verdict, and the time of its end."""
    return [(str(told.verdict), told.ended) for _, _, _, told in led.controller.verdicts()]


async def until_looked_at(led: Namespace) -> None:
    """Wait until the zone's status is made anew."""
    led.controller._zones["books"].fresh = {}
    led.controller._queue.add(Key(Kind.ZONE, "books"))
    await until(lambda: bool(led.controller._zones["books"].fresh), "a look at the zone")


async def test_a_difference_is_known_to_the_next_operator_when_its_object_is_gone(
    led: Namespace,
) -> None:
    found = await finished(led, "first", DIFFER)
    before = await until_condition(led, "False")
    del led.api.objects[led.path("DataValidation", "first")]
    await led.restart()
    await led.until_available("books")
    assert verdicts(led) == [("Differ", found["completionTime"])]

    await ended(led, "second", AGREE, level="Counters")
    await ended(led, "third", AGREE, level="Digest")
    await until_looked_at(led)
    assert await until_condition(led, "False") == before

    await ended(led, "fourth", AGREE, level="Rows")
    condition = await until_condition(led, "True")
    assert "DataValidation fourth" in condition["message"]
    compared = led.api.objects[led.path("Zone", "books")]["status"]["comparisons"]
    assert [(each["level"], each["verdict"], each["run"]) for each in compared] == [
        ("Counters", "Agree", "second"),
        ("Digest", "Agree", "third"),
        ("Rows", "Agree", "fourth"),
    ]


async def test_a_difference_that_was_settled_stays_so_when_that_object_is_gone(
    led: Namespace,
) -> None:
    shown(led, "first", "Differ", "2026-01-01T00:00:00Z")
    shown(led, "second", "Agree", "2026-01-02T00:00:00Z")
    shown(led, "third", "Agree", "2026-01-03T00:00:00Z", "Counters")
    condition = await until_condition(led, "True")
    led.controller.run_gone(Kind.VALIDATION, "second", "uid-of-second")
    await until_looked_at(led)
    assert await until_condition(led, "True") == condition

    del led.api.objects[led.path("DataValidation", "second")]
    await led.restart()
    await led.until_available("books")
    await until_looked_at(led)

    assert await until_condition(led, "True") == condition


def shown(
    led: Namespace,
    name: str,
    verdict: str,
    time: str,
    level: str = "Rows",
    zone_uid: str = "",
    began: str = "",
) -> None:
    """Show an object that has finished long ago."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    spec = {"zoneRef": {"name": "books"}, "level": level}
    status = {"phase": "Finished", "verdict": verdict, "completionTime": time, "message": "said"}
    status |= {"zoneUid": zone_uid, "startTime": began}
    body = {"apiVersion": API_VERSION, "kind": "DataValidation", "metadata": metadata}
    path = led.path("DataValidation", name)
    led.show(led.api.put(path, {**body, "spec": spec, "status": status}))


@pytest.mark.parametrize("level", ["Digest", "Rows"])
@pytest.mark.parametrize("is_differ_seen_first", [True, False])
async def test_a_difference_that_was_found_while_another_validation_ran_stays(
    led: Namespace, level: str, is_differ_seen_first: bool
) -> None:
    def show_differ() -> None:
        shown(led, "hourly", "Differ", "2026-01-01T05:00:00Z", level, began="2026-01-01T04:55:00Z")

    def show_agree() -> None:
        shown(led, "nightly", "Agree", "2026-01-01T06:00:00Z", began="2026-01-01T03:00:00Z")

    for show in (show_differ, show_agree) if is_differ_seen_first else (show_agree, show_differ):
        show()
        await until_looked_at(led)
    condition = await until_condition(led, "False")
    assert condition["message"] == "DataValidation hourly, 2026-01-01T05:00:00Z: said"

    for path in [each for each in led.api.objects if "/datavalidations/" in each]:
        del led.api.objects[path]
    await led.restart()
    await led.until_available("books")
    await until_looked_at(led)
    assert await until_condition(led, "False") == condition

    shown(led, "next", "Agree", "2026-01-02T06:00:00Z", began="2026-01-02T03:00:00Z")
    await until_condition(led, "True")


async def test_no_difference_is_settled_by_a_validation_that_began_before_the_last_one(
    led: Namespace,
) -> None:
    """The last difference is of a level that is less deep than the first one."""
    shown(led, "first", "Differ", "2026-01-01T01:00:00Z", began="2026-01-01T00:00:00Z")
    shown(led, "hourly", "Differ", "2026-01-01T05:00:00Z", "Digest", began="2026-01-01T04:00:00Z")
    shown(led, "nightly", "Agree", "2026-01-01T06:00:00Z", began="2026-01-01T03:00:00Z")
    await until_looked_at(led)

    condition = await until_condition(led, "False")
    assert condition["message"] == "DataValidation hourly, 2026-01-01T05:00:00Z: said"


async def test_results_count_in_the_order_of_their_ends_however_they_are_seen(
    led: Namespace,
) -> None:
    shown(led, "second", "Agree", "2026-01-02T00:00:00Z", "Counters")
    await until_condition(led, "True")
    shown(led, "first", "Differ", "2026-01-01T00:00:00Z")
    condition = await until_condition(led, "False")
    assert condition["message"] == "DataValidation first, 2026-01-01T00:00:00Z: said"

    shown(led, "third", "Differ", "2026-01-03T00:00:00Z", "Counters")
    shown(led, "fourth", "Agree", "2026-01-04T00:00:00Z", "Counters")
    await until_looked_at(led)
    assert await until_condition(led, "False") == condition


@pytest.mark.parametrize("verdict", ["Agree", "Differ"])
async def test_a_result_about_the_data_of_an_earlier_zone_does_not_count(
    led: Namespace, verdict: str
) -> None:
    """Its end was read, by the operator's clock, after this Zone was created."""
    await led.until_available("books")
    shown(led, "first", verdict, "2999-01-01T00:00:00Z", zone_uid="uid-of-one-before")
    await until_looked_at(led)
    assert verdicts(led) == []
    led.controller.run_gone(Kind.VALIDATION, "first", "uid-of-first")
    await until_looked_at(led)
    assert verdicts(led) == []
    status = led.controller._zones["books"].fresh
    assert "comparisons" not in status
    assert "CopiesAgree" not in [each["type"] for each in status["conditions"]]

    shown(led, "second", "Differ", "2026-01-01T00:00:00Z", zone_uid="uid-of-books")
    await until_condition(led, "False")


async def test_a_result_about_some_data_does_not_count_while_those_of_the_zone_are_unknown(
    led: Namespace,
) -> None:
    shown(led, "first", "Differ", "2026-01-01T00:00:00Z", zone_uid="uid-of-one-before")
    zone = led.controller._zones["books"]
    zone.was_told({})

    assert led.controller._runs.validations.completed(zone, ZoneStatus()).conditions == []


@pytest.mark.parametrize(
    ("was", "result", "level", "agrees"),
    [
        ("False", "Agree", "Counters", "False"),
        ("False", "Agree", "Rows", "True"),
        ("True", "Differ", "Counters", "False"),
        ("Unknown", "Agree", "Counters", "True"),
    ],
)
def test_a_condition_of_an_earlier_version_counts_at_the_deepest_level(
    led: Namespace, was: str, result: str, level: str, agrees: str
) -> None:
    zone = led.controller._zones["books"]
    condition = {
        "type": "CopiesAgree",
        "status": was,
        "reason": "Said",
        "message": "DataValidation before, 2026-01-02T00:00:00Z: said",
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    }
    zone.was_told({"conditions": [condition]})
    found = led.controller._runs.validations

    def told() -> str:
        status = found.completed(zone, ZoneStatus())
        return next(each.status for each in status.conditions if each.type == "CopiesAgree")

    shown(led, "earlier", "Differ", "2026-01-01T00:00:00Z")
    if was == "True":
        assert told() == "True", "that it was settled is not forgotten"
    led.controller.run_gone(Kind.VALIDATION, "earlier", "uid-of-earlier")
    if was == "Unknown":
        found._proven.clear()
    shown(led, "later", result, "2026-01-03T00:00:00Z", level)

    assert told() == agrees


def test_an_earlier_version_that_did_not_write_when_a_result_began_hides_no_difference(
    led: Namespace,
) -> None:
    zone = led.controller._zones["books"]
    ended = "2026-01-01T06:00:00Z"
    zone.was_told(
        {"comparisons": [{"level": "Rows", "verdict": "Agree", "time": ended, "run": "nightly"}]}
    )
    shown(led, "hourly", "Differ", "2026-01-01T05:00:00Z", "Digest")
    shown(led, "nightly", "Agree", ended, began="2026-01-01T03:00:00Z")

    told = led.controller._runs.validations.verdict(zone)
    assert told is not None
    assert told.validation == "hourly"


async def test_of_deleted_objects_only_the_last_difference_is_kept(led: Namespace) -> None:
    found = led.controller._runs.validations
    for number in range(1, 4):
        shown(led, f"differ-{number}", "Differ", f"2026-01-0{number}T00:00:00Z")
        shown(led, f"agree-{number}", "Agree", f"2026-01-0{number}T00:00:00Z", "Counters")
    await finished(led, "done", AGREE)
    declare(led, "refused", level="Tea")
    await until_phase(led, "refused", "Refused")
    for path in [each for each in led.api.objects if "/datavalidations/" in each]:
        name = path.rpartition("/")[2]
        led.controller.run_gone(Kind.VALIDATION, name, f"uid-of-{name}")

    kept = [found._bodies, found._addresses, found._over, found._runs, found._verdicts]
    assert kept == [{}] * 5
    [(_, told)] = found._proven.items()
    assert (told.validation, told.ended) == ("differ-3", "2026-01-03T00:00:00Z")
