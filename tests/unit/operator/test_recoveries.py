"""ZoneRecoveries: each is run once, with the result in its status; API and agents are in memory."""

import asyncio
from typing import Any

import pytest

from quorate.protocol.recovery import Recovery, RecoveryAnswer
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs import recoveries
from quorate_operator.mastership import awaited_writes
from quorate_operator.mastership.runner import Runner

Json = dict[str, Any]


@pytest.fixture
def led(led: Namespace, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Zone `books` is served."""
    monkeypatch.setattr(recoveries, "RECOVERY_S", 0.02)
    return led


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Recovery]:
    """The questions to runners."""
    seen: list[Recovery] = []
    recover = Runner.recover

    def noted(self: Runner, uid: str, asked: Recovery) -> RecoveryAnswer | None:
        seen.append(asked)
        return recover(self, uid, asked)

    monkeypatch.setattr(Runner, "recover", noted)
    return seen


def declare(led: Namespace, name: str, action: str = "Restart", **spec: Any) -> None:
    whole = {"zoneRef": {"name": "books"}, "action": action, "partitions": [1, 2], **spec}
    led.declare("ZoneRecovery", name, **whole)


def status(led: Namespace, name: str) -> Json:
    return dict(led.api.objects[led.path("ZoneRecovery", name)].get("status", {}))


async def until_phase(led: Namespace, name: str, phase: str) -> Json:
    await until(lambda: status(led, name).get("phase") == phase, f"{phase}: {name}")
    return status(led, name)


def versions(told: Json) -> list[int]:
    return [each["rowVersion"] for each in told["partitions"]]


def node(led: Namespace) -> str:
    return next(iter(led.world.agents))


async def test_a_dry_run_is_shown_and_what_it_tells_can_be_done(led: Namespace) -> None:
    declare(led, "look", node=node(led))
    shown = await until_phase(led, "look", "Shown")

    assert "nothing was changed: to have it done, create another" in shown["message"]
    assert [each["partition"] for each in shown["partitions"]] == [1, 2]
    assert all("would serve in a new term" in each["message"] for each in shown["partitions"])

    seen = versions(shown)
    declare(led, "do", node=node(led), rowVersions=seen, dryRun=False)
    done = await until_phase(led, "do", "Done")

    assert versions(done) == seen
    assert all("serves in a new term" in each["message"] for each in done["partitions"])
    declare(led, "again", node=node(led), rowVersions=seen, dryRun=False)
    refused = await until_phase(led, "again", "Refused")
    assert len(refused["refusals"]) == 2
    assert "its row has changed: it is at version" in refused["refusals"][0]
    assert refused["partitions"] == []


async def test_no_object_is_run_twice_by_this_operator_or_another(
    led: Namespace, asked: list[Recovery]
) -> None:
    declare(led, "look", node=node(led))
    shown = await until_phase(led, "look", "Shown")
    declare(led, "do", node=node(led), rowVersions=versions(shown), dryRun=False)
    before = await until_phase(led, "do", "Done")
    for body in list(led.api.objects.values()):
        led.show(body)
    await led.restart()
    declare(led, "third", partitions=[3, 4], node=node(led))
    await until(lambda: status(led, "third").get("phase") in ("Shown", "Refused"), "a result")

    assert [each.dry_run for each in asked] == [True, False, True]
    assert status(led, "do") == before


async def test_a_run_that_another_operator_had_begun_is_not_begun_again(
    led: Namespace, asked: list[Recovery]
) -> None:
    declare(led, "other", node="nobody")
    await until_phase(led, "other", "Refused")
    asked.clear()
    path = led.path("ZoneRecovery", "interrupted")
    body = led.api.objects[led.path("ZoneRecovery", "other")]
    metadata = {**body["metadata"], "name": "interrupted", "uid": "uid-interrupted"}
    running = {**body, "metadata": metadata, "status": {"phase": "Running"}}
    led.show(led.api.put(path, running))

    told = await until_phase(led, "interrupted", "Unknown")

    assert "the operator ended while it was being done" in told["message"]
    assert asked == []


async def test_of_two_operators_that_see_it_only_one_runs_it(
    led: Namespace, asked: list[Recovery]
) -> None:
    """The other one has written `Running` meanwhile: this one's knowledge is old."""
    declare(led, "look", node=node(led))
    shown = await until_phase(led, "look", "Shown")
    asked.clear()
    path = led.path("ZoneRecovery", "do")
    body = led.api.objects[led.path("ZoneRecovery", "look")]
    metadata = {**body["metadata"], "name": "do", "uid": "uid-do"}
    spec = {**body["spec"], "rowVersions": versions(shown), "dryRun": False}
    old = led.api.put(path, {**body, "metadata": metadata, "spec": spec, "status": {}})
    led.api.put(path, {**old, "status": {"phase": "Running"}})
    led.show(old)
    await until(lambda: ("PATCH", path) in led.api.requests, "an attempt")
    await asyncio.sleep(0)

    assert asked == []
    assert status(led, "do") == {"phase": "Running"}


async def test_nothing_is_kept_of_deleted_objects(led: Namespace) -> None:
    declare(led, "do", node="nobody")
    await until_phase(led, "do", "Refused")
    found = led.controller._runs._of[Kind.RECOVERY]
    assert isinstance(found, recoveries.Recoveries)
    await until(lambda: not found, "its end")
    assert found._begun == {"do": "uid-of-do"}

    led.controller.run_gone(Kind.RECOVERY, "do", "uid-of-do")

    assert (found._begun, found._bodies, found._results) == ({}, {}, {})


async def test_an_interruption_is_not_told_to_a_later_object_of_the_name(led: Namespace) -> None:
    declare(led, "do", node="nobody")
    await until_phase(led, "do", "Refused")
    path = led.path("ZoneRecovery", "do")
    body = led.api.objects[path]
    metadata = {**body["metadata"], "uid": "uid-of-another"}
    later = led.api.put(path, {**body, "metadata": metadata, "status": {}})
    earlier = {**body["metadata"], "uid": "uid-of-an-interrupted-one"}
    led.api.requests.clear()
    led.show({**body, "metadata": earlier, "status": {"phase": "Running"}})
    await until(lambda: ("PATCH", path) in led.api.requests, "an attempt")
    await until(lambda: not led.controller._runs._of[Kind.RECOVERY], "its end")
    assert status(led, "do") == {}

    led.show(later)
    await until_phase(led, "do", "Refused")


async def test_it_waits_for_its_zone_and_says_so(led: Namespace) -> None:
    declare(led, "early", zoneRef={"name": "films"}, node=node(led))
    told = await until_phase(led, "early", "Waiting")
    assert told["message"].startswith("there is no Zone films in this namespace: create it")

    led.zone("films")
    await until(lambda: status(led, "early")["phase"] != "Waiting", "a result")

    assert status(led, "early")["phase"] in ("Shown", "Refused")  # it may have no rows yet


async def test_what_cannot_be_read_is_refused(led: Namespace, asked: list[Recovery]) -> None:
    declare(led, "twice", action="Cancel", partitions=[3, 3])
    told = await until_phase(led, "twice", "Refused")

    assert "spec.partitions is [3, 3]: write each partition once" in told["message"]
    assert asked == []


async def test_a_result_that_could_not_be_written_is_written_later(
    led: Namespace, asked: list[Recovery], monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(led, "look", node=node(led))
    shown = await until_phase(led, "look", "Shown")
    path = led.path("ZoneRecovery", "do")
    led.api.refuse = lambda method, at: (
        503 if at == path and status(led, "do").get("phase") == "Running" else 0
    )
    declare(led, "do", node=node(led), rowVersions=versions(shown), dryRun=False)
    await until(lambda: led.api.requests.count(("PATCH", path)) >= 2, "the result")
    led.api.refuse = lambda method, at: 0

    await until_phase(led, "do", "Done")

    assert len(asked) == 2


async def test_rows_that_are_not_written_are_told_as_unknown(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_writes, "WRITTEN_S", 0.0)
    declare(led, "look", node=node(led))
    shown = await until_phase(led, "look", "Shown")
    declare(led, "do", node=node(led), rowVersions=versions(shown), dryRun=False)

    told = await until_phase(led, "do", "Unknown")

    assert "it was decided, but the rows are not known to be written" in told["message"]
