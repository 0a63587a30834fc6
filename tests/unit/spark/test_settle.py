"""The wait until the counters of copies are judged, on a clock of the test."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from quorate_link.secret import draw_secret
from quorate_spark.comparing.compare_counters import Judgement, Settled, Unsettled
from quorate_spark.copies import CopySeen, Reading
from quorate_spark.reading import settle as settle_module
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.settle import ZoneCopies, settle
from quorate_spark.settings import Settings
from quorate_spark.verdict import CounterDifference
from quorate_spark_fixtures.scripted_agent import ScriptedCopy

SETTINGS = Settings()


class Clock:
    """Takes the place of `time`: it advances only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


Owned = dict[int, tuple[ScriptedCopy, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCopies(ZoneCopies):
    """`read_at` returns the copies of each partition after so many seconds."""

    clock: Clock
    read_at: Callable[[float], Owned]

    def read(self, settings: Settings) -> Reading:
        owned = self.read_at(self.clock.now_s - 1000.0)
        return Reading({p: seen(*copies) for p, copies in owned.items()}, (), ("A", "B", "C"))


def seen(*copies: ScriptedCopy) -> tuple[CopySeen, ...]:
    return tuple(
        CopySeen("127.0.0.1:1", "ABC"[i], f"s{i}", 1, replace(each, replica_index=i).state(0))
        for i, each in enumerate(copies)
    )


def lwms(*lwm: int, version: int = 3) -> tuple[ScriptedCopy, ...]:
    return tuple(replace(ScriptedCopy(lwm=each), version=version) for each in lwm)


def judged(
    monkeypatch: pytest.MonkeyPatch, read_at: Callable[[float], Owned], replicas: int = 0
) -> dict[int, Judgement]:
    clock = Clock()
    monkeypatch.setattr(settle_module, "time", clock)
    cluster = Cluster("c", draw_secret().keys("tool"), "")
    copies = ReadCopies("z", (), cluster, 0, replicas, clock=clock, read_at=read_at)
    return settle(copies, SETTINGS)[1]


def test_a_copy_that_stands_still_for_the_whole_wait_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = judged(monkeypatch, lambda _: {0: lwms(103, 100)})

    assert isinstance(found[0], CounterDifference)
    assert found[0].what == "lwm"


def test_a_copy_that_has_just_become_comparable_is_not_said_to_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other partition keeps the wait going; in this one a write is on its way at the end."""

    def read_at(seconds: float) -> Owned:
        moved = lwms(103, 100, version=3 if seconds < 14.9 else 4)
        return {0: moved, 1: lwms(100, 90)}

    found = judged(monkeypatch, read_at)

    assert isinstance(found[1], CounterDifference)
    assert isinstance(found[0], Unsettled)
    assert "LWM of B at 100, of 103" in found[0].reason
    assert "comparable for less than 7.5 s" in found[0].reason


def test_the_wait_begins_when_all_agents_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_at(seconds: float) -> Owned:
        if seconds < 14.5:
            raise Unreadable("agent at B cannot be reached")
        return {0: lwms(103, 100 if seconds < 20.0 else 103)}

    assert isinstance(judged(monkeypatch, read_at)[0], Settled)


def test_an_agent_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_at: list[float] = []

    def read_at(seconds: float) -> Owned:
        asked_at.append(seconds)
        raise Unreadable("agent at B cannot be reached")

    with pytest.raises(Unreadable):
        judged(monkeypatch, read_at)
    assert 15.0 <= asked_at[-1] < 16.0


@pytest.mark.parametrize("is_caught_up", [True, False])
def test_a_copy_that_appears_while_another_one_is_missed_is_compared_too(
    monkeypatch: pytest.MonkeyPatch, is_caught_up: bool
) -> None:
    def read_at(seconds: float) -> Owned:
        third = 9 if is_caught_up and seconds >= 2.0 else 2
        return {0: lwms(9, 9) if seconds < 0.5 else lwms(9, 9, third, version=4)}

    found = judged(monkeypatch, read_at, replicas=3)[0]

    if is_caught_up:
        assert isinstance(found, Settled)
        assert [copy.node for copy in found.copies] == ["A", "B", "C"]
    else:
        assert isinstance(found, CounterDifference)
        assert "C stays at LWM 2 of 9" in found.detail


@pytest.mark.parametrize(("since_s", "is_judged"), [(2.0, True), (14.0, False)])
def test_a_copy_is_not_said_to_stand_still_while_its_agent_catches_up_elsewhere(
    monkeypatch: pytest.MonkeyPatch, since_s: float, is_judged: bool
) -> None:
    """The agent of B works through what it lacks, one partition after the other."""

    def read_at(seconds: float) -> Owned:
        return {0: lwms(103, 100), 1: lwms(100, 100 if seconds >= since_s else 90)}

    found = judged(monkeypatch, read_at)

    assert isinstance(found[1], Settled)
    if is_judged:
        assert isinstance(found[0], CounterDifference)
    else:
        assert isinstance(found[0], Unsettled)
        assert "B stays at LWM 100 of 103" in found[0].reason
        assert "its agent still catches up in other partitions" in found[0].reason
