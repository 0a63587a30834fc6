"""The collector works while the agent has little else to do, and has nothing to find."""

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from quorate_agent.notices.tracking import LOOK_MS
from quorate_link.garbage import (
    ALL_S,
    PAUSE_S,
    YOUNG_MAX,
    YOUNG_MAX_OPERATOR,
    YOUNG_MIN,
    Garbage,
)
from quorate_lone_agent.agent import Agent


class _Clocks:
    now_s = 100.0
    cpu_s = 7.0

    def pass_s(self, seconds: float, load: float) -> None:
        self.now_s += seconds
        self.cpu_s += seconds * load


class _Cycle:
    """Found by a collection alone."""

    left = 0

    def __init__(self) -> None:
        self.me = self
        _Cycle.left += 1

    def __del__(self) -> None:
        _Cycle.left -= 1


@pytest.fixture
def clocks() -> Iterator[_Clocks]:
    gc.collect()
    _Cycle.left = 0
    yield _Clocks()
    gc.unfreeze()
    gc.enable()


def _garbage(clocks: _Clocks, young_max: int = YOUNG_MAX, jitter: float = 0.0) -> Garbage:
    made = Garbage(lambda: clocks.now_s, lambda: clocks.cpu_s, young_max=young_max, jitter=jitter)
    made.look(0)
    return made


def test_nothing_is_collected_while_there_is_much_to_do(clocks: _Clocks) -> None:
    looks = _garbage(clocks)
    enough = YOUNG_MIN + 1000  # older containers that go meanwhile are taken off the count
    for _ in range(enough):
        _Cycle()
    for _ in range(100):
        clocks.pass_s(1, load=0.6)
        looks.look(0)
    assert _Cycle.left == enough

    clocks.pass_s(1, load=0.1)
    looks.look(0)
    assert _Cycle.left == 0


def test_who_gets_little_of_a_processor_is_not_quiet(clocks: _Clocks) -> None:
    looks = _garbage(clocks)
    for _ in range(YOUNG_MIN):
        _Cycle()
    for _ in range(100):
        clocks.pass_s(1, load=0.1)  # all that others leave it
        looks.look(late_s=0.3)
    assert _Cycle.left == YOUNG_MIN

    clocks.pass_s(1, load=0.1)
    looks.look(late_s=0.02)
    assert _Cycle.left == 0


def test_collections_have_a_pause_between_them(clocks: _Clocks) -> None:
    looks = _garbage(clocks)
    clocks.pass_s(PAUSE_S - 1, load=0)
    for _ in range(YOUNG_MIN):
        _Cycle()
    looks.look(0)
    assert _Cycle.left == YOUNG_MIN
    clocks.pass_s(1, load=0)
    looks.look(0)
    assert _Cycle.left == 0


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "after an hour"])
def test_survivors_are_visited_again_only_when_something_large_was_dropped_or_after_long(
    clocks: _Clocks, is_told: bool
) -> None:
    looks = _garbage(clocks)
    later = [_Cycle()]

    def collect() -> None:
        young = [[number] for number in range(YOUNG_MIN)]
        clocks.pass_s(PAUSE_S, load=0)
        looks.look(0)
        young.clear()

    collect()
    later.clear()
    collect()
    assert _Cycle.left == 1, "it has survived a collection"

    if is_told:
        looks.visit_all()
    else:
        clocks.now_s += ALL_S
    clocks.pass_s(PAUSE_S, load=0)
    looks.look(0)
    assert _Cycle.left == 0


def test_an_operator_that_is_never_quiet_collects(clocks: _Clocks) -> None:
    """With 1,000 zones at rest it takes 0.29 of a core."""
    looks = _garbage(clocks, young_max=YOUNG_MAX_OPERATOR)
    for _ in range(YOUNG_MAX_OPERATOR):
        _Cycle()
    clocks.pass_s(1, load=0.3)
    looks.look(0)
    assert _Cycle.left == 0


def test_processes_that_were_started_together_visit_all_at_different_times(
    clocks: _Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [_garbage(clocks, jitter=jitter) for jitter in (0.1, 0.5, 0.9)]
    visited: list[float] = []
    monkeypatch.setattr(gc, "unfreeze", lambda: visited.append(clocks.now_s))

    def pass_time(seconds: float) -> list[float]:
        visited.clear()
        for _ in range(int(seconds)):
            clocks.pass_s(1, load=0)
            for looks in each:
                looks.look(0)
        return visited

    assert len(set(pass_time(ALL_S))) == 3
    pass_time(PAUSE_S)
    for looks in each:
        looks.visit_all()
    assert len(set(pass_time(PAUSE_S))) == 3
    monkeypatch.undo()


def test_too_many_are_looked_at_whatever_there_is_to_do(clocks: _Clocks) -> None:
    looks = _garbage(clocks, young_max=2 * YOUNG_MIN)
    kept = [[number] for number in range(2 * YOUNG_MIN)]
    _Cycle()
    clocks.pass_s(0.1, load=1)
    looks.look(0)
    assert (_Cycle.left, len(kept)) == (0, 2 * YOUNG_MIN)


SESSION: tuple[tuple[bytes, ...], ...] = (
    (b"HELLO", b"3"),
    (b"CLIENT", b"TRACKING", b"ON"),
    (b"SET", b"k", b"1"),
    (b"INCR", b"k"),
    (b"GET", b"k"),
    (b"LPUSH", b"k", b"wrong type"),
    (b"HSET", b"h", b"field", b"value"),
    (b"SCAN", b"0"),
    (b"WATCH", b"k"),
    (b"MULTI",),
    (b"SET", b"k", b"2"),
    (b"SET", b"elsewhere", b"3"),
    (b"EXEC",),
    (b"SUBSCRIBE", b"channel"),
    (b"NO", b"SUCH", b"COMMAND"),
    (b"WAIT", b"0", b"0"),
    (b"FLUSHALL",),
)


def _one_session(agent: Agent, last: bytes) -> None:
    client = agent.writer()
    for words in SESSION:
        client.ask(*words)
        agent.turn()
    client.connection.data_received(last)
    client.leave()
    agent.tick()


@pytest.mark.parametrize("last", [b"", b"*2\r\n$3\r\nGET", b"*1\r\n$x"], ids=["end", "cut", "bad"])
def test_sessions_leave_nothing_that_only_a_collection_finds(last: bytes) -> None:
    agent = Agent()
    _one_session(agent, last)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(20):
            _one_session(agent, last)
        agent.clock.ahead_ms += LOOK_MS
        agent.turn()  # by then nobody remembers who was there
        gc.collect()
        found = Counter(type(each).__qualname__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found.total() < 20, found  # else each had left something
