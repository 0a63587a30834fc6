"""Decides about commands whose partition this agent does not serve at present.

- Another agent is primary: the command is forwarded while this agent was primary recently; else its
  client gets MOVED.
- No agent is primary, or this agent is about to be: the command is parked.
- The connection is READONLY: it may read the copy that is here.
"""

from __future__ import annotations

from quorate.facts.keyspace import is_reserved, slot_shift
from quorate.protocol.copies.copy import Copy
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.clients.memory import WATCHED_BYTES
from quorate_agent.commands.answers import Answers
from quorate_agent.commands.routing.across import Across
from quorate_agent.commands.routing.forwards import Forwards
from quorate_agent.commands.routing.parking import Parking
from quorate_agent.commands.zone.overview import ZoneOverview
from quorate_agent.metrics import AgentMetrics
from quorate_agent.resp import replies
from quorate_agent.resp.command import Command, command_slot
from quorate_agent.resp.transaction import NOT_WATCHED, Transaction


class Redirects:
    """Decides where the commands go that one zone's endpoint does not execute itself."""

    def __init__(
        self,
        answers: Answers,
        parking: Parking,
        forwards: Forwards,
        across: Across,
        overview: ZoneOverview,
        metrics: AgentMetrics,
    ) -> None:
        self._answers = answers
        self._parking = parking
        self._forwards = forwards
        self._across = across
        self._overview = overview
        self._replicas = answers.replicas
        self._boot_ms = answers.clock.boot_ms
        self._shift = slot_shift(answers.replicas.record.partitions)
        self._metrics = metrics

    def readable(self, client: ClientConnection, command: Command, partition: int) -> Copy | None:
        """Return the copy a READONLY connection may read here: one that has adopted its term."""
        if not client.state.readonly or command.is_write:
            return None
        copy = self._replicas.copies.get(partition)
        return copy if copy is not None and copy.adopted else None

    def send_on(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        number: int,
        now: int,
        slot: Slot | None,
    ) -> None:
        """Forward or redirect the command if another node that is up is primary; else park it."""
        forwards = self._forwards
        partition = number >> self._shift
        elsewhere = self._elsewhere(client, partition)
        if not elsewhere or forwards.came_before_its_row(client, elsewhere):
            self._parking.park(client, command, args, now, slot)
        elif self._across.may_look(command, number):
            slot = self._parking.place(client, command, args, now, slot)
            if slot is not None:
                self._across.look(slot, partition)
        elif forwards.is_known(slot) or forwards.may(client, command, args, partition, now):
            slot = self._parking.place(client, command, args, now, slot)
            if slot is not None:
                self._metrics.forwarded.inc()
                forwards.take_on(slot, partition, elsewhere)
        else:
            self._answers.say(client, command.family, slot, self._moved(client, number))

    def queue(self, client: ClientConnection, command: Command | bytes, args: list[bytes]) -> bytes:
        """Keep a command after MULTI for EXEC, unless it is wrong or belongs to another node.

        `command` is an error reply if it is wrong.  Returns the reply to the command."""
        transaction = client.state.transaction
        assert transaction is not None
        if client.state.unwatched:
            return transaction.refuse(NOT_WATCHED)
        if isinstance(command, bytes):
            return transaction.refuse(command)
        if problem := self._refusal(client, transaction, command, args):
            return transaction.refuse(problem)
        reply = transaction.queue(command, args)
        if transaction.bytes > WATCHED_BYTES and not client.charged:
            client.endpoint.memory.watch(client)
        return reply

    def _refusal(
        self,
        client: ClientConnection,
        transaction: Transaction,
        command: Command,
        args: list[bytes],
    ) -> bytes:
        """Return why the command cannot be queued here; b"" if it can.

        The agent that serves the first key coordinates the transaction, and asks other agents for
        what the other keys need."""
        if not command.is_keyed:
            return b""
        if any(map(is_reserved, command.keys(args))):
            return replies.RESERVED_KEY
        number = command_slot(command, args)
        if number < 0:
            return replies.CROSSSLOT
        if command.grows and (problem := self._answers.no_room()):
            return problem
        partition = number >> self._shift
        if transaction.slot < 0:
            transaction.slot = number
        if (
            transaction.slot != number
            or self.readable(client, command, partition) is not None
            or not self._elsewhere(client, partition)
            or self._forwards.covers(partition, self._boot_ms())
        ):
            return b""
        return self._moved(client, number)

    def _moved(self, client: ClientConnection, number: int) -> bytes:
        self._metrics.moved.inc()
        return self._overview.cluster(client.state.external).moved(number)

    def _elsewhere(self, client: ClientConnection, partition: int) -> str:
        """Return the primary's node if it is another one, is up, and can be reached by this client;
        else ""."""
        row = self._replicas.table[partition]
        if row is None or row.primary is None:
            return ""
        node = row.primary.node
        return node if self._overview.is_reachable(node, client.state.external) else ""
