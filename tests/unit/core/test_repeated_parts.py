"""A part of a transaction that waits for locks is asked for again: large ones ever less often."""

from itertools import pairwise

import pytest

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.transactions import BYTES_PER_MS, PreparePart
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.transactions.coordinator import REPEAT_MS_MAX, Coordinator, PartWanted
from quorate_lone_agent.core import TICK_MS, LoneAgent

MIB = 1 << 20
RETRY_MS = DEFAULTS.step_retry_ms


class _Waiting:
    """A transaction whose first part is never answered; `at_ms`: when it was asked for."""

    def __init__(self, byte_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zone = LoneAgent(1, monkeypatch).core.zones["zone-0"]
        wanted = tuple([PartWanted(p, (b"k",), ((b"INCR", b"k"),), (), byte_count) for p in (0, 1)])
        self._coordinator = Coordinator(
            self.zone, b"t", wanted, False, None, DEFAULTS.park_bound_ms
        )
        self.at_ms: list[int] = []
        self._ms = 0

    def pass_time(self, ms: int) -> None:
        """Look at the transaction with each tick."""
        until_ms = self._ms + ms
        while self._ms < until_ms:
            assert self._coordinator.look(self._ms, self._noted) is None
            self._ms += TICK_MS

    def _noted(self, node: str, message: Message) -> None:
        assert isinstance(message, PreparePart)
        self.at_ms.append(self._ms)


def test_a_small_part_is_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = _Waiting(100, monkeypatch)

    waiting.pass_time(1000)

    assert waiting.at_ms == [*range(0, 1000, RETRY_MS)]


@pytest.mark.parametrize(("size", "times"), [(100_000, 10), (MIB, 7), (8 * MIB, 4)])
def test_a_large_part_is_asked_for_again_after_ever_longer_pauses(
    monkeypatch: pytest.MonkeyPatch, size: int, times: int
) -> None:
    waiting = _Waiting(size, monkeypatch)

    waiting.pass_time(DEFAULTS.park_bound_ms)

    pauses = [later - earlier for earlier, later in pairwise(waiting.at_ms)]
    in_flight_ms = size // BYTES_PER_MS
    assert len(waiting.at_ms) == times
    assert pauses == sorted(pauses)
    assert pauses[0] <= RETRY_MS + in_flight_ms + TICK_MS
    assert pauses[-1] <= RETRY_MS + max(REPEAT_MS_MAX, 2 * in_flight_ms) + TICK_MS


def test_another_primary_is_asked_at_once_and_soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = _Waiting(MIB, monkeypatch)
    waiting.pass_time(3000)
    asked = len(waiting.at_ms)
    monkeypatch.setattr(waiting.zone, "primary_of", lambda partition: "b")

    waiting.pass_time(500)

    assert [at_ms - 3000 for at_ms in waiting.at_ms[asked:]] == [0, 250]
