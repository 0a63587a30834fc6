"""How commands reach a primary that was here a moment ago: forwarded, instead of redirected.

An agent forwards for `forward_ms` after it lost a partition's primary to another that it knows.
Its client's connection waits meanwhile, so that the order of its commands is kept.  A request whose
answer is lost is asked again, of whoever is primary then; its first answer was remembered with the
rows that it wrote (resp/remembered.py), so it never happens twice.  One that comes later than its
client waits, because the network held it, is not executed.  Source: docs/protocol.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.message import Message
from quorate_agent.clients.connection import ClientConnection, Endpoint, Slot, boot_ms
from quorate_agent.commands.parking import Parking
from quorate_agent.resp import replies
from quorate_agent.resp.command import Command
from quorate_agent.resp.commands.scan import PartOfScan, run_inside
from quorate_agent.resp.remembered import remembering, request_key
from quorate_agent.resp.session import Agent, Connection, Session
from quorate_agent.resp.tables.table import resolve_all
from quorate_agent.resp.transaction import Call, Execution

WORDS_BYTES_MAX = 1024 * 1024
"""Larger commands are redirected: each forwarded one is held until it is answered."""

RATE_PERCENT_MIN = 95
"""How slowly an agent's clock may run beside another's (protocol.md, section 1): so much less than
its client waits may pass at the receiver."""

REPLY_BYTES_MAX = 65 * 1024 * 1024
_TOO_LARGE = replies.error(b"ERR the command was executed; its reply is too large to be forwarded")


class Executor(Endpoint, Protocol):
    """The endpoint, as far as forwarding needs it."""

    replicas: Replicas
    parking: Parking

    @property
    def overview(self) -> Agent:
        """What commands without keys ask."""

    def execute_forwarded(self, client: ClientConnection, call: Call) -> None:
        """Execute for a client of another agent."""

    def fulfil(self, client: ClientConnection, slot: Slot | None, reply: bytes) -> None:
        """Answer."""

    def no_room(self) -> bytes:
        """Why nothing may grow now; empty: it may."""


class _Request:
    """One forwarded command.  `uncertain`: an attempt may have been executed."""

    __slots__ = (
        "again_ms", "is_scan", "is_write", "message", "node", "partition", "slot", "uncertain",
    )  # fmt: skip

    def __init__(self, slot: Slot, message: Forward, partition: int) -> None:
        self.slot = slot
        self.message = message
        self.partition = partition
        self.is_write = slot.command.is_write
        self.is_scan = isinstance(slot.command.handler, PartOfScan)
        self.node = ""  # whom it was sent to; empty: nobody at present
        self.uncertain = False
        self.again_ms = 0  # when it is asked again; 0: not by time


class Forwards:
    """What one zone's endpoint has forwarded, and executes for others."""

    def __init__(
        self, endpoint: Executor, process: str, send: Callable[[str, Message], None]
    ) -> None:
        self._endpoint = endpoint
        self._replicas = endpoint.replicas
        self._process = process  # this process, unlike any other
        self._send = send
        self.is_leaving = False  # this agent is about to end: clients had better hear of it
        self._requests: dict[Slot, _Request] = {}
        self._by_number: dict[int, _Request] = {}
        self._next = 1

    # --- for our clients -------------------------------------------------------------------------

    def covers(self, partition: int, now_ms: int) -> bool:
        """Whether the partition's primary was here so lately that commands are forwarded."""
        if self.is_leaving:
            return False
        lost_ms = self._replicas.lost_primary.get(partition)
        return lost_ms is not None and now_ms - lost_ms < self._replicas.settings.forward_ms

    def may(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        partition: int,
        now_ms: int,
    ) -> bool:
        """Whether to forward a command that was not forwarded before.

        Not what another agent forwards here; nor WATCH, which says where a transaction begins."""
        handler = command.handler
        if isinstance(client, ForwardedClient) or command.name == b"watch":
            return False
        if isinstance(handler, PartOfScan):
            return True  # whoever scans has no other way to those keys
        queued = handler.queued if isinstance(handler, Execution) else [(command, args)]
        if any(map(_changes_connection, (each for each, _ in queued))):
            return False  # its connection is here
        size = sum(len(word) for _, words in queued for word in words)
        return size <= WORDS_BYTES_MAX and self.covers(partition, now_ms)

    def came_before_its_row(self, client: ClientConnection, primary: str) -> bool:
        """Whether the agent that forwards for this client is the primary by our row, which is older
        than the one that made it forward: to be redirected there would lead in a circle."""
        return isinstance(client, ForwardedClient) and client.agent == primary

    def take_on(self, slot: Slot, partition: int, primary: str) -> None:
        """Send the slot's command to `primary`, whether for the first time or again."""
        request = self._requests.get(slot)
        if request is None:
            command, message = slot.command, self._message(slot)
            request = _Request(slot, message, partition)
            self._requests[slot] = self._by_number[message.number] = request
            if command.is_write:
                key = request_key(self._process, message.number)
                no_room = self._endpoint.no_room
                slot.command = remembering(command, key, no_room)
        request.node = primary
        left_ms = (slot.deadline_ms - boot_ms()) * RATE_PERCENT_MIN // 100
        heard_ms = self._replicas.leases.heard(primary)
        attempt = msgspec.structs.replace(request.message, heard_ms=heard_ms, left_ms=left_ms)
        self._send(primary, attempt)

    def _message(self, slot: Slot) -> Forward:
        number, self._next = self._next, self._next + 1
        state = slot.connection.state
        resp3, external = state.resp3, state.external
        handler = slot.command.handler
        uid = self._replicas.uid
        if not isinstance(handler, Execution):
            words = handler.words if isinstance(handler, PartOfScan) else slot.args
            calls = (tuple(words),)
            return Forward(uid, self._process, number, resp3, calls, external=external)
        return Forward(
            uid,
            self._process,
            number,
            resp3,
            tuple([tuple(words) for _, words in handler.queued]),
            True,
            tuple([(key, *seen) for key, seen in handler.watched.items()]),
            external=external,
        )

    def is_known(self, slot: Slot | None) -> bool:
        """Whether the slot's command has been forwarded before."""
        return slot is not None and slot in self._requests

    def take_reply(self, node: str, message: Forwarded) -> None:
        """An agent has answered, or could not."""
        request = self._by_number.get(message.number)
        if request is None or message.process != self._process or request.node != node:
            return
        reply = message.reply
        if reply == replies.UNKNOWN_OUTCOME:
            self._ask_again(request, executed=True)
        elif reply == replies.CLUSTERDOWN:
            request.node = ""
            request.again_ms = boot_ms() + self._replicas.settings.step_retry_ms
        elif reply.startswith(b"-MOVED ") and (request.uncertain or request.is_scan):
            self._ask_again(request, executed=False)
        elif request.uncertain and replies.is_no_room(reply):
            request.again_ms = boot_ms() + self._replicas.settings.step_retry_ms
        else:
            self._forget(request)
            client = request.slot.connection
            if request.is_write:
                client.last_write = (None, request.partition)
            self._endpoint.fulfil(client, request.slot, reply)

    def _ask_again(self, request: _Request, executed: bool) -> None:
        request.node, request.again_ms = "", 0
        request.uncertain |= executed and request.is_write
        self._endpoint.parking.park_again(request.slot)

    def peer_down(self, node: str) -> None:
        """The link to an agent is gone, and answers with it."""
        for request in list(self._requests.values()):
            if request.node == node:
                self._ask_again(request, executed=True)

    def table_changed(self) -> None:
        """Rows changed: whom we wait for may be primary no more."""
        for request in list(self._requests.values()):
            primary = self._replicas.primary_of(request.partition)
            if request.node and primary and request.node != primary:
                self._ask_again(request, executed=True)
            elif not request.node and request.again_ms:
                self._ask_again(request, executed=False)

    def tick(self, now_ms: int) -> None:
        """Give up what has waited for too long, forget what was answered."""
        for request in list(self._requests.values()):
            slot = request.slot
            if slot.done:
                self._forget(request)  # not before: executed here it may yet have to go once more
            elif request.node and slot.deadline_ms <= now_ms:
                request.uncertain |= request.is_write
                self.give_up(slot)
            elif request.again_ms and request.again_ms <= now_ms:
                self._ask_again(request, executed=False)

    def give_up(self, slot: Slot) -> None:
        """Time is over: nobody served, or nobody knows."""
        reply = replies.CLUSTERDOWN
        request = self._requests.get(slot)
        if request is not None:
            self._forget(request)
            if request.uncertain:
                reply = replies.UNKNOWN_OUTCOME
        self._endpoint.fulfil(slot.connection, slot, reply)

    def client_gone(self, client: ClientConnection) -> None:
        """What it had asked goes on, the answers have nowhere to go."""
        for request in list(self._requests.values()):
            if request.slot.connection is client:
                self._forget(request)

    def _forget(self, request: _Request) -> None:
        self._requests.pop(request.slot, None)
        self._by_number.pop(request.message.number, None)

    @property
    def has_waiting(self) -> bool:
        """Whether any command is forwarded at present."""
        return bool(self._requests)

    # --- for clients of others -------------------------------------------------------------------

    def perform(self, node: str, message: Forward) -> None:
        """Execute what an agent asks for its client."""
        self._replicas.wake()

        def respond(reply: bytes) -> None:
            if len(reply) > REPLY_BYTES_MAX:
                reply = _TOO_LARGE
            self._send(node, Forwarded(message.zone, message.process, message.number, reply))

        until_ms = message.heard_ms + message.left_ms
        leases = self._replicas.leases
        if until_ms <= boot_ms() or not leases.sent_heartbeat(node, message.heard_ms):
            respond(replies.CLUSTERDOWN)  # nothing has happened: it may be asked again
            return
        client = ForwardedClient(self._endpoint, node, respond, message, until_ms)
        call = _call(message, client.session)
        if isinstance(call, bytes):
            respond(call)
            return
        if call.command.is_write:
            key = request_key(message.process, message.number)
            no_room = self._endpoint.no_room
            call = Call(remembering(call.command, key, no_room), call.args)
        self._endpoint.execute_forwarded(client, call)


class ForwardedClient(ClientConnection):
    """Stands for a client of another `agent`, which waits until `until_ms`, while one command of
    its is executed."""

    __slots__ = ("_respond", "_until_ms", "agent")

    def __init__(
        self,
        endpoint: Executor,
        agent: str,
        respond: Callable[[bytes], None],
        message: Forward,
        until_ms: int,
    ) -> None:
        super().__init__(endpoint)
        self.agent = agent
        self._respond = respond
        self._until_ms = until_ms
        self.state = Connection(0, "", "", 0)
        self.state.resp3 = message.resp3
        self.state.external = message.external
        self.state.is_agents = True
        self.session = Session(self.state, endpoint.overview)

    def waits_no_more(self, now_ms: int) -> bool:
        """Whether its agent has told the client by now that nobody knows."""
        return self._until_ms <= now_ms

    def write(self) -> None:
        """The reply."""
        reply = b"".join(self.out)
        self.out.clear()
        self._respond(reply)


def _changes_connection(command: Command) -> bool:
    if command.group == "connection":
        return command.name not in (b"ping", b"echo")
    return command.name in (b"readonly", b"readwrite")


def _call(message: Forward, session: Session) -> Call | bytes:
    """What a Forward asks for, or the error that it is no command here."""
    found = resolve_all(message.commands)
    if isinstance(found, bytes):
        return found
    if not message.transaction:
        return Call(*found[0])

    watched = {key: (term, counter) for key, term, counter in message.watched}
    return Execution(found, watched, partial(run_inside, session)).call()
