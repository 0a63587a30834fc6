"""How much of a silence a machine takes that stands still, and that its standstills are noticed."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from quorate_cluster.standstill import (
    BOUND_S,
    SILENCE_S,
    Standstill,
    StandstillWatch,
    describe,
    standstill_s,
    worst_s,
)
from quorate_cluster.standstill_watch import CPU_NOTED_S
from quorate_cluster.waiting import wait_until


def test_a_machine_that_never_stood_still_takes_nothing() -> None:
    assert worst_s([]) == 0
    assert describe([]) == "it never stood still"


def test_standstills_within_one_silence_add_up() -> None:
    short = [Standstill("cpu 0", 10.0 + 0.5 * n, 0.3) for n in range(20)]
    assert worst_s(short) == pytest.approx(6 * 0.3)
    assert worst_s(short) < BOUND_S


def test_what_stands_still_at_once_counts_once() -> None:
    both = [Standstill("cpu 0", 10.0, 1.0), Standstill("cpu 1", 10.5, 1.0)]
    assert worst_s(both) == pytest.approx(1.5)
    assert worst_s(both[::-1]) == pytest.approx(1.5)


def test_standstills_further_apart_than_a_silence_do_not_add_up() -> None:
    apart = [Standstill("disk", 10.0, 1.2), Standstill("disk", 11.2 + SILENCE_S, 1.1)]
    assert worst_s(apart) == pytest.approx(1.2)


def test_the_disk_and_processors_do_not_add_up() -> None:
    seen = [Standstill("disk", 10.0, 1.5), Standstill("cpu 0", 11.5, 1.4)]
    assert worst_s(seen) == pytest.approx(1.5)


def test_who_may_not_run_before_all_others_says_nothing_of_the_machine() -> None:
    assert worst_s([Standstill("late on cpu 0", 10.0, 60.0)]) == 0


def test_a_long_standstill_takes_a_whole_silence() -> None:
    assert worst_s([Standstill("cpu 1", 10.0, 60.0)]) == SILENCE_S


def test_each_of_what_stood_still_is_described_by_its_longest() -> None:
    seen = [Standstill("disk", 1, 0.5), Standstill("cpu 0", 1, 0.2), Standstill("disk", 3, 2.5)]
    assert describe(seen) == (
        "cpu 0 stood still 1 x, at most 0.20 s; disk stood still 2 x, at most 2.50 s"
    )


def test_only_what_is_between_two_moments_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [Standstill("disk", 10.0, 4.0), Standstill("cpu 0", 8.0, 1.0)]
    with StandstillWatch() as watch:
        monkeypatch.setattr(watch, "since", lambda _: seen)
        assert standstill_s(8.5, 12.0) == pytest.approx(2.5)
        assert standstill_s(20.0, 30.0) == 0


def test_a_watch_that_is_stopped_notes_that_it_stood_still() -> None:
    with StandstillWatch() as watch:

        def stopped() -> list[Standstill]:
            os.kill(watch.pid, signal.SIGSTOP)
            try:
                time.sleep(3 * CPU_NOTED_S)
            finally:
                os.kill(watch.pid, signal.SIGCONT)
            return watch.since(0)

        seen = wait_until(stopped, "a note of it")
        now = time.monotonic()
        assert max(each.seconds for each in seen) > CPU_NOTED_S
        assert all(each.began < now for each in seen)
        assert standstill_s(0, now) > CPU_NOTED_S
        assert watch.since(now + 60) == []
        assert 0 <= watch.stolen() <= 1


def test_what_goes_on_is_noted_again_and_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"disk 10.0 1.5\ndisk 10.0 2.5\ncpu 0 11.0 0.5\nlate on cpu 1 12.0 0.25\ncpu 0 81234.5"
    with StandstillWatch() as watch:
        monkeypatch.setattr(os, "pread", lambda *_: lines)
        assert watch.since(0) == [
            Standstill("disk", 10.0, 2.5),
            Standstill("cpu 0", 11.0, 0.5),
            Standstill("late on cpu 1", 12.0, 0.25),
        ]
        assert watch.since(12.3) == [Standstill("disk", 10.0, 2.5)]


def test_a_watch_whose_process_has_ended_says_that_it_does_not_look() -> None:
    with StandstillWatch() as watch:
        assert watch.looks
        os.kill(watch.pid, signal.SIGKILL)
        wait_until(lambda: not watch.looks, "its end")


def test_a_wait_does_not_count_the_time_in_which_the_machine_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(10_000))
    fast = SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(clock))
    monkeypatch.setattr("quorate_cluster.waiting.time", fast)

    def asked_until_too_late(standstill: float) -> int:
        began = next(clock) + 1
        monkeypatch.setattr("quorate_cluster.waiting.standstill_s", lambda *_: standstill)
        with pytest.raises(TimeoutError, match=r"no end in 50 s"):
            wait_until(lambda: False, "end", 50)
        return next(clock) - began

    assert 50 < asked_until_too_late(0) < 60
    assert 150 < asked_until_too_late(100) < 260
