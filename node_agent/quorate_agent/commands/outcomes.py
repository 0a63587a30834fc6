"""Takes what the copies have finished, and passes each outcome to the reply that waits for it."""

from __future__ import annotations

from collections.abc import Callable

from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.transactions.parts import Telling
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.commands.answers import Answers
from quorate_agent.commands.zone.flush import PartOfFlush
from quorate_agent.metrics import AgentMetrics
from quorate_agent.resp import replies
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

    def take(self) -> list[Slot]:
        """Finish what the replicas have finished; return the commands to execute again."""
        touched = self._answers.touched
        finished = self._replicas.take_finished()
        for waiter in finished.answered:
            if type(waiter) is Slot:
                waiter.done = True
                touched[waiter.connection] = None
            elif isinstance(waiter, Telling):
                self._replicas.transactions.told(waiter)
            elif isinstance(waiter, PartOfFlush) and waiter.ended():
                touched[waiter.slot.connection] = None
        for waiter in finished.refused:
            if isinstance(waiter, Telling):
                self._replicas.transactions.refused(waiter, self._answers.full())
            _forget_watched(waiter)
            if isinstance(waiter, Slot) and self._may_be_executed(waiter):
                finished.unknown.append(waiter)
            else:
                _end(waiter, self._answers.full(), touched)
        for waiter in finished.unknown:
            self._metrics.unknown.inc(waiter.count if isinstance(waiter, Slot) else 1)
            _end(waiter, replies.UNKNOWN_OUTCOME, touched)
        again: list[Slot] = []
        for waiter in finished.again:
            # Also for half-closed clients: they are answered, and then closed.
            if isinstance(waiter, Slot) and waiter.connection.queue:
                _forget_watched(waiter)
                again.append(waiter)
        return again


def _end(waiter: Waiter, reply: bytes, touched: dict[ClientConnection, None]) -> None:
    if isinstance(waiter, Slot):
        waiter.reply = reply * waiter.count
        waiter.done = True
        touched[waiter.connection] = None
    elif isinstance(waiter, PartOfFlush) and waiter.ended(reply):
        touched[waiter.slot.connection] = None


def _forget_watched(waiter: Waiter) -> None:
    if isinstance(waiter, Slot) and isinstance(waiter.command.handler, Watching):
        waiter.command.handler.forget()
