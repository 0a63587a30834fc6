"""The pauses until a cluster is led again: they grow, are forgotten, and end with the cluster."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared import lead_again
from quorate_operator.declared.lead_again import (
    FAILED_PAUSE_S,
    FORGOTTEN_S,
    OVERTAKEN_PAUSE_S,
    LeadAgain,
)


class Pause:
    """A call that is due after `seconds`."""

    def __init__(self, seconds: float, then: Callable[[], None]) -> None:
        self.seconds = seconds
        self.then = then
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop whose time a test sets; it notes which calls are due, and makes none."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[Pause] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, call: Callable[[str], None], name: str) -> Pause:
        self.pauses.append(Pause(delay, lambda: call(name)))
        return self.pauses[-1]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(lead_again, "asyncio", SimpleNamespace(get_running_loop=lambda: made))
    return made


def test_pauses_grow_and_an_end_long_after_the_last_one_is_the_first(loop: Loop) -> None:
    led: list[str] = []
    pauses = LeadAgain(led.append)
    for factor in (1, 2, 4, 1):
        if factor == 1:
            loop.now_s += FORGOTTEN_S
        pauses.overtaken("main")
        pauses.failed("other", "a defect")

        main, other = loop.pauses[-2:]
        assert (main.seconds, other.seconds) == (
            factor * OVERTAKEN_PAUSE_S,
            factor * FAILED_PAUSE_S,
        )
        main.then()
        other.then()
    assert led == ["main", "other"] * 4


def test_a_cluster_that_is_gone_is_not_led_again_and_its_pauses_are_forgotten(loop: Loop) -> None:
    pauses = LeadAgain(lambda name: None)
    pauses.overtaken("main")
    pauses.failed("main", "a defect")
    pauses.overtaken("other")
    pauses.forget("main")

    assert [each.is_cancelled for each in loop.pauses] == [True, True, False]
    pauses.overtaken("main")
    assert loop.pauses[-1].seconds == OVERTAKEN_PAUSE_S
    pauses.close()
    assert all(each.is_cancelled for each in loop.pauses)
    pauses.forget("main")


async def test_the_next_cluster_of_that_name_is_not_ended_by_the_pause_of_the_one_before(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("books")
    await declared.until_available("books")
    pauses = declared.controller._pauses
    pauses.failed("main", "a defect")
    declared.controller.cluster_gone("main", "uid-of-main")
    declared.declare("StorageCluster", "main", uid="another", addresses=declared.addresses())

    await until(
        lambda: (
            "main" in declared.controller._led
            and declared.controller._led["main"].cluster.metadata.uid == "another"
        ),
        "the next one is led",
    )
    assert pauses._due == {}


async def test_a_master_that_fails_while_the_operator_stops_is_not_led_again(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared.start()
    controller = declared.controller
    close = controller._led.close

    async def fails_meanwhile() -> None:
        await close()
        controller._pauses.failed("main", "a defect")
        await asyncio.sleep(0)

    monkeypatch.setattr(controller._led, "close", fails_meanwhile)
    await controller.close()

    assert controller._pauses._due == {}
