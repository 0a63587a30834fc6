"""Questions of paced links: each waits for its turn, then is answered from the present rows.

A question that waits holds neither rows nor a snapshot: its rows are read when its turn has come.
All links have one queue, in order of arrival.  A tool asks again once it has its answer, so links
take turns.

    asked --rate has paid for all before it--> answered
      |--link lost--> dropped
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import (
    AnswerLater,
    AskBuckets,
    AskColumns,
    AskPaced,
    AskRows,
    AskUpdates,
    Paced,
)
from quorate_agent.process.paced.pace import Portion, ReadPace
from quorate_link import Link

WORD_S = 1.0
"""How often a tool that waits is told that its answer is still to come: well within the time that
it waits for an agent that says nothing."""
WAITING_MAX = 16
"""Questions of one link that may wait.  A tool asks one at a time."""
SHORTEST_S = 0.001
_PACED = AskColumns | AskRows | AskUpdates | AskBuckets


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Drop the call."""


class PacedQuestions:
    """The questions that wait, and the timer for the next one.

    `answer` reads, sends and returns how many bytes it sent.  `call_later`: as of an event loop.
    """

    def __init__(
        self,
        answer: Callable[[Link, Message, Portion], int],
        call_later: Callable[[float, Callable[[], None]], Timer],
        clock: Callable[[], float],
    ) -> None:
        self._answer = answer
        self._call_later = call_later
        self._clock = clock
        self._pace = ReadPace(clock)
        self._waiting: deque[tuple[Link, Message]] = deque()
        self._timer: Timer | None = None
        self._told_s = 0.0
        self._is_closed = False

    def take(self, link: Link, message: Message) -> bool:
        """Take a tool's message if it is of a paced reading; False: it is not."""
        if isinstance(message, AskPaced):
            link.send(self._take_limit(link, message))
            return True
        if link not in self._pace or not isinstance(message, _PACED):
            return False
        if sum(other is link for other, _ in self._waiting) >= WAITING_MAX:
            link.close(f"more than {WAITING_MAX} questions wait: ask again after an answer")
            return True
        if self._is_closed:
            return True
        if not self._waiting:
            self._told_s = self._clock()
        self._waiting.append((link, message))
        if self._timer is None:
            self._go_on()
        return True

    def link_down(self, link: Link) -> None:
        """Forget a link and its questions."""
        if link in self._pace:
            self._pace.end(link)
            self._waiting = deque(each for each in self._waiting if each[0] is not link)

    def close(self) -> None:
        """Answer nothing any more."""
        self._is_closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _take_limit(self, link: Link, asked: AskPaced) -> Paced:
        if asked.bytes_per_s <= 0:
            return Paced(0, f"bytes_per_s is {asked.bytes_per_s}: ask for 1 or more")
        self._pace.ask(link, asked.bytes_per_s)
        return Paced(self._pace.bytes_per_s)

    def _due(self) -> None:
        self._timer = None
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._pace.wait_s() <= 0:
            link, message = self._waiting.popleft()
            portion = self._pace.portion
            sent = self._answer(link, message, portion)
            self._pace.charge(max(sent, portion.read))
        if not self._waiting:
            return
        now_s = self._clock()
        if now_s - self._told_s >= WORD_S:
            self._told_s = now_s
            later = AnswerLater(len(self._waiting))
            for link in dict.fromkeys(link for link, _ in self._waiting):
                link.send(later)
        until_s = min(self._pace.wait_s(), self._told_s + WORD_S - now_s)
        self._timer = self._call_later(max(until_s, SHORTEST_S), self._due)
