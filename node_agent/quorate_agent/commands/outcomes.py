"""Takes what the copies have finished, and passes each outcome to the reply that waits for it."""

from __future__ import annotations

from collections.abc import Callable

from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.transactions.parts import Telling
from quorate_agent.clients.connection import Slot
from quorate_agent.clients.meter import ERROR
from quorate_agent.commands.answers import Answers
from quorate_agent.commands.zone.flush import PartOfFlush
from quorate_agent.metrics import AgentMetrics
from quorate_agent.resp import replies
from quorate_agent.resp.command import WRITE
from quorate_agent.resp.transaction import Watching


class Outcomes:
    """The outcomes of one zone's copies.

    `may_be_executed` returns whether another agent may execute a slot's command, too."""

    def __init__(
        self, answers: Answers, metrics: AgentMetrics, may_be_executed: Callable[[Slot], bool]
    ) -> None:
        self._answers = answers
        self._replicas = answers.replicas
        self._metrics = metrics
        self._may_be_executed = may_be_executed
        self._meter = answers.meter

    def take(self) -> list[Slot]:
        """Finish what the replicas have finished; return the commands to execute again."""
        touched, meter = self._answers.touched, self._meter
        written = meter.written
        finished = self._replicas.take_finished()
        for waiter in finished.answered:
            if type(waiter) is Slot:
                waiter.done = True
                touched[waiter.connection] = None
                if waiter.command.family == WRITE and waiter.reply[0] != ERROR:
                    written[waiter.arrived] += waiter.count
                else:
                    meter.ended(waiter)
            elif isinstance(waiter, Telling):
                self._replicas.transactions.told(waiter)
            else:
                self._part_ended(waiter)
        if written:
            meter.end_writes()
        for waiter in finished.refused:
            if isinstance(waiter, Telling):
                self._replicas.transactions.refused(waiter, self._answers.full())
            _forget_watched(waiter)
            if isinstance(waiter, Slot) and self._may_be_executed(waiter):
                finished.unknown.append(waiter)
            else:
                self._end(waiter, self._answers.full())
        for waiter in finished.unknown:
            self._metrics.unknown.inc(waiter.count if isinstance(waiter, Slot) else 1)
            self._end(waiter, replies.UNKNOWN_OUTCOME)
        again: list[Slot] = []
        for waiter in finished.again:
            # Also for half-closed clients: they are answered, and then closed.
            if isinstance(waiter, Slot) and waiter.connection.queue:
                _forget_watched(waiter)
                again.append(waiter)
        return again

    def _end(self, waiter: Waiter, reply: bytes) -> None:
        """Pass on an outcome that is not the waiter's own reply."""
        if isinstance(waiter, Slot):
            waiter.reply = reply * waiter.count
            waiter.done = True
            self._answers.touched[waiter.connection] = None
            self._meter.ended(waiter)
        else:
            self._part_ended(waiter, reply)

    def _part_ended(self, waiter: Waiter, problem: bytes = b"") -> None:
        """Note that a partition's part of FLUSHALL has ended, if it is one."""
        if isinstance(waiter, PartOfFlush) and waiter.ended(problem):
            self._answers.touched[waiter.slot.connection] = None
            self._meter.ended(waiter.slot)


def _forget_watched(waiter: Waiter) -> None:
    if isinstance(waiter, Slot) and isinstance(waiter.command.handler, Watching):
        waiter.command.handler.forget()
