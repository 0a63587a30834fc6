"""How the thread of the election ends; the candidate is played by the test."""

import asyncio
from collections.abc import Callable

import pytest

from quorate_operator.kube.access import KubeAccess
from quorate_operator.mastership import election_thread
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.mastership.election_thread import ElectionThread
from quorate_operator.process.loop_watch import LoopWatch

NOWHERE = KubeAccess("http://127.0.0.1:9", None)


class Candidate:
    """Holds the lease from the first moment; ends when and as the test says."""

    def __init__(self, end: Callable[[], None] | None) -> None:
        self.acquired = asyncio.Event()
        self.lost_reason = ""
        self.released = False
        self._end = end

    def holds(self) -> bool:
        return not self.released

    async def run(self) -> None:
        self.acquired.set()
        if self._end is None:
            await asyncio.Event().wait()
        else:
            self._end()

    async def release(self) -> None:
        self.released = True


def thread(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[], None] | None
) -> tuple[ElectionThread, list[Candidate]]:
    candidates: list[Candidate] = []

    def stand(*_: object, **__: object) -> Candidate:
        candidates.append(Candidate(end))
        return candidates[0]

    monkeypatch.setattr(election_thread, "Elector", stand)
    return ElectionThread(NOWHERE, "default", "a", ElectionSettings(), LoopWatch()), candidates


def defect() -> None:
    raise KeyError("spec")


async def test_a_defect_of_the_election_ends_the_mandate_and_gives_the_lease_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    election, candidates = thread(monkeypatch, defect)
    election.start()
    async with asyncio.timeout(10):
        await election.ended.wait()

    assert "KeyError" in election.lost_reason
    assert not election.holds()
    assert not candidates[0].released  # what leads may have a write under way: let it run out


async def test_a_thread_that_has_just_ended_is_stopped_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    election, _ = thread(monkeypatch, lambda: None)
    election.start()
    assert election._thread is not None
    election._thread.join()  # nothing of its end has reached this loop yet

    async with asyncio.timeout(10):
        await election.stop()

    assert election.ended.is_set()


async def test_one_that_is_stopped_gives_the_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    election, candidates = thread(monkeypatch, None)
    election.start()
    async with asyncio.timeout(10):
        await election.acquired.wait()
        await election.stop()

    assert candidates[0].released
    assert election.lost_reason == ""
