"""What the elector makes of answers that come late; the API server is played by the test."""

import asyncio
from typing import Any, cast

import pytest

from quorate_operator.kube.api import KubeApi
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
