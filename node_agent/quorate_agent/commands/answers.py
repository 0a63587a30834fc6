"""State shared by all parts that answer the commands of one zone's clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Primary
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.clients.meter import CommandMeter
from quorate_agent.commands.pipeline.alike import ENDS_AGENT, shows_expiry
from quorate_agent.machine.clock import Clock
from quorate_agent.metrics import AgentMetrics
from quorate_agent.notices.tracking import Tracking
from quorate_agent.resp import replies
from quorate_agent.resp.command import Command

_log = logging.getLogger("quorate.agent.commands")


class Answers:
    """Answers of one zone's clients.

    `touched`: the connections that the turn's end looks at.  `turn()` asks for a turn's end;
    `why_full()` says why nothing may grow, "" if it may."""

    def __init__(
        self,
        replicas: Replicas,
        tracking: Tracking,
        metrics: AgentMetrics,
        meter: CommandMeter,
        turn: Callable[[], None],
        why_full: Callable[[], str],
        clock: Clock,
    ) -> None:
        self.touched: dict[ClientConnection, None] = {}
        self.turn = turn
        self.why_full = why_full
        self.replicas = replicas
        self.clock = clock
        self._tracking = tracking
        self._metrics = metrics
        self.meter = meter

    def say(self, client: ClientConnection, family: str, slot: Slot | None, reply: bytes) -> None:
        """Answer a command at once, or in `slot` if the reply is waited for there."""
        if slot is not None:
            self.fulfil(client, slot, reply)
            return
        self.meter.answered(family, reply)
        client.answer(reply)

    def fulfil(self, client: ClientConnection, slot: Slot, reply: bytes) -> None:
        """Answer in `slot`, where the reply is waited for."""
        slot.reply = reply
        slot.done = True
        self.meter.ended(slot)
        self.touched[client] = None
        self.unblock(slot)
        if reply == replies.CLUSTERDOWN:
            self._metrics.clusterdown.inc()
        elif reply == replies.UNKNOWN_OUTCOME:
            self._metrics.unknown.inc()
        if client.half_closed_ms and reply in (replies.CLUSTERDOWN, replies.UNKNOWN_OUTCOME):
            client.refuse(replies.CLUSTERDOWN)  # the commands behind it are too late as well

    def failed(
        self, client: ClientConnection, command: Command, slot: Slot | None, error: Exception
    ) -> None:
        """Answer a command whose handler has failed.

        The caller has forgotten what the command had gathered to write.  The connection goes on: a
        client that lost it would repeat the commands before this one."""
        self.say(client, command.family, slot, failure(command.name, error))

    def unblock(self, slot: Slot) -> None:
        """Let later commands of the slot's connection no longer wait for it."""
        client = slot.connection
        if slot.deadline_ms:
            slot.deadline_ms = 0
            client.blocked -= 1
            self.touched[client] = None

    def take_touched(self) -> dict[ClientConnection, None]:
        """Return the connections to look at, and begin to gather the next ones."""
        touched, self.touched = self.touched, {}
        return touched

    def tell_expired(self, role: Primary, keys: Iterable[bytes], now_ms: int) -> None:
        """Have clients told which of these keys have expired, before the keys are shown."""
        if shows_expiry(role, self.replicas.surveys, now_ms):
            self.remove_expired(role, keys, now_ms)

    def remove_expired(self, role: Primary, keys: Iterable[bytes], now_ms: int) -> None:
        """Remove those of these keys that have expired.

        Before WATCH: removed only after it, they would count as changed."""
        if self._tracking.expire(role, keys, now_ms):
            self.turn()

    def no_room(self) -> bytes:
        """Return the error reply while nothing may grow, else b""."""
        return self.full() if self.why_full() else b""

    def full(self) -> bytes:
        """Return the error reply to commands that need room while there is none."""
        if not self.replicas.record.persistent:
            return replies.OOM
        return replies.misconf(self.replicas.me.node, self.why_full())


def failure(name: bytes, error: Exception) -> bytes:
    """Log that the handler of a command has failed, and return the reply; raise the error again if
    it ends the agent."""
    if isinstance(error, ENDS_AGENT):
        raise error
    _log.error("the command %s failed", name.decode(), exc_info=error)
    return replies.COMMAND_FAILED
