"""Paced readings of an agent share its rate; tests move the clock and the timer."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest

from quorate.facts.errors import QuorateError
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import (
    AnswerLater,
    AskBuckets,
    AskColumns,
    AskCopies,
    AskPaced,
    AskRows,
    AskUpdates,
    Paced,
)
from quorate.protocol.storage import Row
from quorate_agent.process.paced.pace import ACTIVE_S, Portion
from quorate_agent.process.paced.questions import (
    ANSWER_LATER_EVERY_S,
    WAITING_MAX,
    PacedQuestions,
)
from quorate_link import Link

MIB = 1024 * 1024
ASK = AskColumns("z", 0, b"", MIB)


class _Due:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _Loop:
    """Time that passes when a test says so, and calls that are then due."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._due: list[tuple[float, int, Callable[[], None], _Due]] = []
        self._numbers = count()

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> _Due:
        due = _Due()
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._numbers), call, due))
        return due

    def pass_s(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._due and self._due[0][0] <= end_s:
            at_s, _, call, due = heapq.heappop(self._due)
            self.now_s = max(self.now_s, at_s)
            if not due.is_cancelled:
                call()
        self.now_s = end_s


class _Link:
    """A link to a tool."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.closed = ""

    def send(self, message: Message) -> bool:
        self.sent.append(message)
        return True

    def close(self, reason: str) -> None:
        self.closed = reason


class _Agent:
    """The questions of an agent, each of whose answers has `size` bytes."""

    def __init__(self, size: int = MIB) -> None:
        self.loop = _Loop()
        self.size = size
        self.read = 0
        self.answered: list[tuple[float, Any, Message]] = []
        self.portions: list[int] = []
        self.asks_again = False
        self.failures: dict[Any, Exception] = {}
        """Links whose questions fail."""
        self.questions = PacedQuestions(self._answer, self.loop.call_later, self.loop.time)

    def _answer(self, link: Link, message: Message, portion: Portion) -> int:
        self.answered.append((self.loop.now_s - 100.0, link, message))
        self.portions.append(portion.bytes_max)
        portion.read = self.read
        if link in self.failures:
            raise self.failures[link]
        if self.asks_again:
            self.loop.call_later(0, lambda: self.take(link, message))
        return self.size

    def take(self, link: Any, message: Message) -> bool:
        return self.questions.take(cast(Link, link), message)

    def paced(self, mib_per_s: int) -> _Link:
        link = _Link()
        assert self.take(link, AskPaced(mib_per_s * MIB))
        return link

    def ask(self, *links: _Link) -> None:
        """Take one question of each link, in this order."""
        for link in links:
            self.take(link, ASK)

    def asked_by_three(self, mib_per_s: int, failure: Exception) -> tuple[_Link, _Link, _Link]:
        """Return three paced links that have asked once; the question of the second one fails."""
        first, broken, last = links = tuple(self.paced(mib_per_s) for _ in range(3))
        self.failures[broken] = failure
        self.ask(*links)
        return first, broken, last

    @property
    def times(self) -> list[float]:
        return [round(at_s, 3) for at_s, _, _ in self.answered]


def test_each_answer_is_paid_for_before_the_next_one() -> None:
    agent = _Agent(size=MIB // 2)
    link = agent.paced(4)
    agent.ask(link, link, link)

    assert agent.times == [0]
    agent.loop.pass_s(0.2)
    assert agent.times == [0, 0.125]
    agent.loop.pass_s(0.2)
    assert agent.times == [0, 0.125, 0.25]


def test_readers_of_an_agent_share_the_rate_and_take_turns() -> None:
    agent = _Agent(size=MIB // 4)
    agent.asks_again = True
    links = [agent.paced(2) for _ in range(4)]
    agent.ask(*links)

    agent.loop.pass_s(10)

    assert 78 <= len(agent.answered) <= 81  # 20 MiB, and the one that nothing came before
    shares = [sum(each is link for _, each, _ in agent.answered) for link in links]
    assert max(shares) - min(shares) <= 1


def test_the_lowest_rate_counts_while_its_reader_is_there() -> None:
    agent = _Agent()
    fast = agent.paced(10)
    slow = _Link()
    agent.take(slow, AskPaced(MIB))

    assert slow.sent == [Paced(MIB)]
    agent.ask(fast, fast, fast)
    agent.loop.pass_s(1.5)
    assert agent.times == [0, 1]
    agent.questions.link_down(cast(Link, slow))
    agent.loop.pass_s(0.55)
    assert agent.times == [0, 1, 2]


def test_what_was_read_is_paid_for_although_its_reader_is_gone() -> None:
    agent = _Agent()
    first = agent.paced(1)
    agent.ask(first)
    agent.questions.link_down(cast(Link, first))

    second = agent.paced(1)
    agent.ask(second)
    agent.loop.pass_s(2)

    assert agent.times == [0, 1]


def test_time_without_readers_saves_nothing_for_later() -> None:
    agent = _Agent()
    link = agent.paced(1)
    agent.loop.pass_s(60)
    agent.ask(link, link)
    agent.loop.pass_s(0.9)

    assert agent.times == [60]


def test_an_answer_has_the_bytes_of_a_tenth_of_a_second() -> None:
    agent = _Agent(size=1)
    agent.take(agent.paced(10), ASK)
    assert agent.portions == [MIB]


def test_rows_that_were_read_and_not_told_are_paid_for() -> None:
    agent = _Agent(size=10)
    agent.read = MIB
    link = agent.paced(1)
    agent.take(link, AskBuckets("z", 0, 9, None))
    agent.ask(link)
    agent.loop.pass_s(0.9)
    assert agent.times == [0]
    agent.loop.pass_s(0.2)
    assert agent.times == [0, 1]

    portion = Portion(100)
    portion.note([(b"key", Row(1, 1, 0, b"value")), (b"gone", Row(2, 1, 0, None))])
    assert portion.read == 12


@pytest.mark.parametrize(
    "question",
    [ASK, AskRows("z", 0, None, 1), AskUpdates("z", 0, 0, 9), AskBuckets("z", 0, 9, None)],
)
def test_links_without_a_limit_are_not_held_back(question: Message) -> None:
    agent = _Agent()
    agent.take(agent.paced(1), ASK)

    assert not agent.take(_Link(), question)
    assert agent.take(agent.paced(1), question)


def test_other_questions_of_a_paced_link_are_answered_at_once() -> None:
    agent = _Agent()
    link = agent.paced(1)
    agent.ask(link)

    assert not agent.take(link, AskCopies("z"))


def test_a_tool_that_waits_long_is_told_that_the_answer_comes() -> None:
    agent = _Agent(size=10 * MIB)
    first, second = agent.paced(1), agent.paced(1)
    agent.ask(first, second)
    agent.loop.pass_s(9.5)

    told = [each for each in second.sent if isinstance(each, AnswerLater)]
    assert len(told) == pytest.approx(9.5 / ANSWER_LATER_EVERY_S, abs=1)
    assert told[0] == AnswerLater(1)
    assert not any(isinstance(each, AnswerLater) for each in first.sent)
    agent.loop.pass_s(1)
    assert agent.times == [0, 10]


def test_questions_of_a_lost_link_are_dropped() -> None:
    agent = _Agent()
    lost, other = agent.paced(1), agent.paced(1)
    agent.ask(other, lost, other)
    agent.questions.link_down(cast(Link, lost))
    agent.loop.pass_s(5)

    assert agent.times == [0, 1]
    assert all(link is other for _, link, _ in agent.answered)


def test_a_link_that_asks_without_end_is_closed() -> None:
    agent = _Agent()
    link = agent.paced(1)
    for _ in range(WAITING_MAX + 1):
        agent.take(link, ASK)
    assert not link.closed
    agent.ask(link)
    assert "ask again after an answer" in link.closed


def test_nothing_is_read_after_the_end_of_the_agent() -> None:
    agent = _Agent()
    link = agent.paced(1)
    agent.ask(link, link)
    agent.questions.close()
    agent.ask(link)
    agent.loop.pass_s(5)

    assert agent.times == [0]


def test_a_rate_of_nothing_is_refused_with_the_way_out() -> None:
    agent = _Agent()
    link = _Link()
    for rate in (0, MIB - 1):
        agent.take(link, AskPaced(rate))

    assert link.sent == [
        Paced(0, "bytes_per_s is 0: ask for 1048576 or more"),
        Paced(0, "bytes_per_s is 1048575: ask for 1048576 or more"),
    ]
    assert not agent.take(link, ASK)


def test_a_reader_that_asks_nothing_does_not_hold_back_others() -> None:
    agent = _Agent()
    slow, fast = agent.paced(1), agent.paced(10)
    agent.ask(slow)
    agent.loop.pass_s(ACTIVE_S + 1)
    agent.answered.clear()
    agent.ask(fast, fast, fast)
    agent.loop.pass_s(1)
    assert agent.times == pytest.approx([11, 11.1, 11.2], abs=0.01)

    agent.answered.clear()
    agent.ask(slow, fast, fast)
    agent.loop.pass_s(5)
    assert agent.times == pytest.approx([12, 13, 14], abs=0.01), "its limit counts again"


def test_a_reader_that_waits_long_for_its_answer_still_counts() -> None:
    agent = _Agent(size=12 * MIB)
    slow, fast = agent.paced(1), agent.paced(10)
    agent.ask(fast, slow)
    agent.loop.pass_s(5)
    agent.ask(fast)
    agent.loop.pass_s(30)

    assert agent.times == pytest.approx([0, 12, 12 + ACTIVE_S + 0.2], abs=0.01)


def test_the_limit_of_a_reader_that_asks_again_counts_at_once() -> None:
    agent = _Agent()
    slow, fast = agent.paced(1), agent.paced(10)
    agent.loop.pass_s(ACTIVE_S + 1)
    agent.ask(fast, fast)
    agent.loop.pass_s(0.05)
    agent.ask(slow)
    agent.loop.pass_s(5)

    assert agent.times == pytest.approx([11, 11.55, 12.55], abs=0.01)


def test_an_answer_that_fails_ends_its_own_link_only(caplog: pytest.LogCaptureFixture) -> None:
    agent = _Agent()
    first, broken, last = agent.asked_by_three(10, ValueError("no such row"))
    agent.loop.pass_s(5)

    assert [link for _, link, _ in agent.answered] == [first, broken, last]
    assert agent.times == pytest.approx([0, 0.1, 0.2], abs=0.01), "failed answers are paid for"
    assert broken.closed == "AskColumns failed on the agent: its log says why"
    assert (first.closed, last.closed) == ("", "")
    assert "ValueError: no such row" in caplog.text


def test_an_error_that_concerns_all_of_the_agent_is_not_held_back() -> None:
    agent = _Agent()
    _, broken, last = agent.asked_by_three(1, QuorateError("the database is broken"))
    with pytest.raises(QuorateError, match="the database is broken"):
        agent.loop.pass_s(5)

    assert not broken.closed
    agent.loop.pass_s(5)
    assert agent.answered[-1][1] is last
