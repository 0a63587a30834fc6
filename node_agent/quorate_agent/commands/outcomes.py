"""Takes what the copies have finished, and passes each outcome to the reply that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Waiter
from quorate.protocol.transactions.parts import Telling
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.commands.flush import PartOfFlush
from quorate_agent.resp import replies
from quorate_agent.resp.transaction import Watching

if TYPE_CHECKING:
    from quorate_agent.metrics import AgentMetrics


class Outcomes:
    """The outcomes of one zone's copies.

    `full` returns the error reply when there is no room; `may_be_executed` whether another agent
    may execute a slot's command, too."""

    def __init__(
        self,
        replicas: Replicas,
        metrics: AgentMetrics,
        full: Callable[[], bytes],
        may_be_executed: Callable[[Slot], bool],
    ) -> None:
        self._replicas = replicas
        self._metrics = metrics
        self._full = full
        self._may_be_executed = may_be_executed

    def take(self, touched: dict[ClientConnection, None]) -> list[Slot]:
        """Finish what the replicas have finished, and add the connections concerned to `touched`.

        Returns the commands that are to be executed again."""
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
                self._replicas.transactions.refused(waiter, self._full())
            _forget_watched(waiter)
            if isinstance(waiter, Slot) and self._may_be_executed(waiter):
                finished.unknown.append(waiter)
            else:
                _end(waiter, self._full(), touched)
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
