"""What the elector makes of answers that come late; the API server is played by the test."""

import asyncio
from typing import Any, cast

import pytest

from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi
from quorate_operator.mastership import elector as elector_module
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.mastership.elector import Elector

SETTINGS = ElectionSettings(10_000, 7_000, 1_500, 1_500)
Json = dict[str, Any]


class LateApi:
    """Writes every Lease; `answered_ms` is the time at which its answer comes."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._revision = 0
        self.answered_ms: list[int] = []

    async def get(self, path: str, timeout_s: float) -> Json:
        return {}

    async def create(self, path: str, body: Json, timeout_s: float) -> Json:
        return await self.replace(path, body, timeout_s)

    async def replace(self, path: str, body: Json, timeout_s: float) -> Json:
        self._revision += 1
        self._clock.ms = self.answered_ms.pop(0) if self.answered_ms else self._clock.ms
        await asyncio.sleep(0)  # the mandate is asked for meanwhile
        return {**body, "metadata": {"resourceVersion": str(self._revision)}}


class Clock:
    ms = 1_000

    async def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


async def test_a_renewal_that_is_answered_after_the_deadline_ends_the_mastership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    api = LateApi(clock)
    # The first write is answered at once, two renewals too, the third one after the deadline.
    api.answered_ms = [1_000, 2_500, 4_000, 11_500]
    answers: list[bool] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        answers.append(elector.holds())
        await real_sleep(0)

    elector = Elector(cast(KubeApi, api), "default", "a", SETTINGS)
    monkeypatch.setattr(elector_module, "boot_ms", lambda: clock.ms)
    monkeypatch.setattr(elector_module.asyncio, "sleep", sleep)

    await elector.run()

    assert True in answers
    assert not elector.holds()
    assert elector.lost_reason.startswith("the lease was not renewed")


async def test_who_was_told_no_is_never_told_yes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    elector = Elector(cast(KubeApi, LateApi(clock)), "default", "a", SETTINGS)
    monkeypatch.setattr(elector_module, "boot_ms", lambda: clock.ms)
    running = asyncio.create_task(elector.run())
    await elector.acquired.wait()
    assert elector.holds()

    clock.ms += SETTINGS.renew_deadline_ms
    assert not elector.holds()
    clock.ms -= SETTINGS.renew_deadline_ms  # as if the renewal had been answered in time after all

    assert not elector.holds()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class SlowApi:
    """Keeps a Lease as an API server does; each request takes `takes_ms`, and what is asked with
    less time is done, and not answered.  `loses`: whether it is not even done.  `asked_s`: the time
    that each request had."""

    def __init__(self, clock: "Clock", takes_ms: int) -> None:
        self._clock = clock
        self.takes_ms = takes_ms
        self.loses = False
        self.asked_s: list[float] = []
        self.lease: Json = {}
        self._revision = 0

    async def get(self, path: str, timeout_s: float) -> Json:
        self.asked_s.append(timeout_s)
        if self.loses:
            self._clock.ms += round(timeout_s * 1000)
            raise ApiUnclear("no answer")
        self._clock.ms += 10
        return self.lease

    async def create(self, path: str, body: Json, timeout_s: float) -> Json:
        return await self.replace(path, body, timeout_s)

    async def replace(self, path: str, body: Json, timeout_s: float) -> Json:
        self.asked_s.append(timeout_s)
        known = self.lease.get("metadata", {}).get("resourceVersion")
        is_late = timeout_s * 1000 < self.takes_ms
        self._clock.ms += round(timeout_s * 1000) if is_late else self.takes_ms
        await asyncio.sleep(0)
        if body["metadata"].get("resourceVersion") != known:
            raise ApiRefused(409, "Conflict", "another revision")
        if not self.loses:
            self._revision += 1
            metadata = {"resourceVersion": str(self._revision)}
            self.lease = {**body, "metadata": metadata}
        if is_late:
            raise ApiUnclear("no answer")
        return self.lease


async def hold_for(
    monkeypatch: pytest.MonkeyPatch, takes_ms: int, seconds: int, *, loses: bool = False
) -> tuple[Elector, Clock, SlowApi]:
    """Hold a Lease whose renewals take so long."""
    clock = Clock()
    api = SlowApi(clock, 5)
    real_sleep = asyncio.sleep
    elector = Elector(cast(KubeApi, api), "default", "a", SETTINGS)

    async def sleep(wait_s: float) -> None:
        await clock.sleep(wait_s)
        if elector.acquired.is_set():
            api.takes_ms, api.loses = takes_ms, loses
        await real_sleep(0)

    monkeypatch.setattr(elector_module, "boot_ms", lambda: clock.ms)
    monkeypatch.setattr(elector_module.asyncio, "sleep", sleep)
    running = asyncio.create_task(elector.run())
    end_ms = clock.ms + seconds * 1000
    while clock.ms < end_ms and not running.done():
        await real_sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return elector, clock, api


async def test_a_renewal_that_takes_longer_than_the_usual_bound_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elector, _, _ = await hold_for(monkeypatch, takes_ms=2_500, seconds=120)

    assert elector.lost_reason == ""
    assert elector.holds()


async def test_a_renewal_whose_answer_was_lost_counts_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is written under this very time: nobody else can have done it."""
    elector, _, _ = await hold_for(monkeypatch, takes_ms=60_000, seconds=120)

    assert elector.lost_reason == ""
    assert elector.holds()


async def test_a_renewal_that_was_never_written_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elector, clock, _ = await hold_for(monkeypatch, takes_ms=60_000, seconds=120, loses=True)

    assert elector.lost_reason.startswith("the lease was not renewed")
    assert clock.ms < 1_000 + 2 * SETTINGS.renew_deadline_ms


async def test_an_attempt_leaves_time_for_another_one_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that swallows what is written costs one attempt, not the lease."""
    _, _, api = await hold_for(monkeypatch, takes_ms=60_000, seconds=20, loses=True)

    attempts = api.asked_s[2:]  # behind the look and the write by which it was acquired
    assert len(attempts) >= 3
    assert min(attempts) >= SETTINGS.request_timeout_ms / 1000
    assert max(attempts) <= (SETTINGS.renew_deadline_ms - SETTINGS.retry_ms) / 2 / 1000


@pytest.mark.parametrize(("holder", "left"), [("a", ""), ("b", "b")])
async def test_a_lease_is_released_also_behind_a_renewal_that_was_given_up_on_its_way(
    monkeypatch: pytest.MonkeyPatch, holder: str, left: str
) -> None:
    """It was written, and changed the revision; a lease that is another's by now stays so."""
    elector, _, api = await hold_for(monkeypatch, takes_ms=5, seconds=20)
    renewed = {**api.lease, "spec": {**api.lease["spec"], "holderIdentity": holder}}
    await api.replace("", renewed, timeout_s=1)

    await elector.release()

    assert api.lease["spec"]["holderIdentity"] == left
    assert not elector.holds()
