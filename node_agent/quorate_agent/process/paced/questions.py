"""Questions of paced links: each waits for its turn, then is answered from the present rows.

A question that waits holds neither rows nor a snapshot: its rows are read when its turn has come.
All links have one queue, in order of arrival.  A tool asks again once it has its answer, so links
take turns.

    asked --rate has paid for all before it--> answered
      |--link lost--> dropped
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from quorate.facts.errors import QuorateError
from quorate.facts.read_limit import MIB
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import (
    AnswerLater,
    AskPaced,
    Paced,
    PacedQuestion,
)
from quorate_agent.process.paced.pace import Portion, ReadPace
from quorate_link import Link

_log = logging.getLogger("quorate.agent")

ANSWER_LATER_EVERY_S = 1.0
"""Interval of AnswerLater while a tool waits: well within the time that it waits for an agent that
says nothing."""
WAITING_MAX = 16
"""Questions of one link that may wait.  A tool asks one at a time."""
SHORTEST_S = 0.001


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
        self._told_at_s = 0.0
        self._is_closed = False

    def take(self, link: Link, message: Message) -> bool:
        """Take a tool's message if it is of a paced reading; False: it is not."""
        if isinstance(message, AskPaced):
            link.send(self._take_limit(link, message))
            return True
        if link not in self._pace or not isinstance(message, PacedQuestion):
            return False
        if sum(other is link for other, _ in self._waiting) >= WAITING_MAX:
            link.close(f"more than {WAITING_MAX} questions wait: ask again after an answer")
            return True
        if self._is_closed:
            return True
        if not self._waiting:
            self._told_at_s = self._clock()
        self._waiting.append((link, message))
        self._pace.note_reading([link])
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
        if asked.bytes_per_s < MIB:
            return Paced(0, f"bytes_per_s is {asked.bytes_per_s}: ask for {MIB} or more")
        self._pace.ask(link, asked.bytes_per_s)
        return Paced(self._pace.bytes_per_s)

    def _due(self) -> None:
        self._timer = None
        self._go_on()

    def _go_on(self) -> None:
        self._pace.note_reading(link for link, _ in self._waiting)
        try:
            while self._waiting and self._pace.wait_s() <= 0:
                self._answer_next()
            self._say_that_answers_come()
        finally:
            self._wait()

    def _answer_next(self) -> None:
        link, message = self._waiting.popleft()
        portion = self._pace.portion
        size = portion.bytes_max  # as much as it may have read, if it fails
        try:
            size = self._answer(link, message, portion)
        except QuorateError:  # it concerns all of the agent
            raise
        except Exception as error:
            asked = type(message).__name__
            _log.error("%s of a paced link failed, which is closed", asked, exc_info=error)
            link.close(f"{asked} failed on the agent: its log says why")
        finally:
            self._pace.charge(max(size, portion.read))

    def _say_that_answers_come(self) -> None:
        now_s = self._clock()
        if now_s - self._told_at_s < ANSWER_LATER_EVERY_S:
            return
        self._told_at_s = now_s
        later = AnswerLater(len(self._waiting))
        for link in dict.fromkeys(link for link, _ in self._waiting):
            link.send(later)

    def _wait(self) -> None:
        if not self._waiting:
            return
        until_word_s = self._told_at_s + ANSWER_LATER_EVERY_S - self._clock()
        until_s = min(self._pace.wait_s(), until_word_s)
        self._timer = self._call_later(max(until_s, SHORTEST_S), self._due)
