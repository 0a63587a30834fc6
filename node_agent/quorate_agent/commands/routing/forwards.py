"""Forwards commands to a primary that was here a moment ago, instead of redirecting their clients.

An agent forwards for `forward_ms` after it has lost a partition's primary to another agent it
knows.  The client's connection waits meanwhile, which keeps the order of its commands.  If the
answer is lost, the agent asks again, whichever agent is primary then.  The first answer was stored
with the rows that the command wrote (resp/remembered.py), so a command never takes effect twice.  A
request that the network delivers later than its client waits is not executed.  Source:
docs/protocol.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.message import Message
from quorate_agent.clients.connection import ClientConnection, ClientEndpoint, Slot
from quorate_agent.commands.answers import Answers
from quorate_agent.commands.routing.parking import Parking
from quorate_agent.resp import replies
from quorate_agent.resp.command import Command
from quorate_agent.resp.commands.keyspace.scan import InTransaction, PartOfScan
from quorate_agent.resp.remembered import remembering, request_key
from quorate_agent.resp.session import AgentServices, Connection, Session
from quorate_agent.resp.tables.table import resolve_all
from quorate_agent.resp.transaction import Call, Execution

WORDS_BYTES_MAX = 1024 * 1024
"""Larger commands are redirected: each forwarded one is kept in memory until it is answered."""

RATE_PERCENT_MIN = 95
"""How slow an agent's clock may run compared with another's (protocol.md, section 1).

The time that is left is shortened by this, so that the receiver stops before the client does."""

REPLY_BYTES_MAX = 65 * 1024 * 1024
_TOO_LARGE = replies.error(b"ERR the command was executed; its reply is too large to be forwarded")


class _Request:
    """One forwarded command.  `uncertain`: an earlier attempt may have been executed."""

    __slots__ = (
        "again_ms", "is_scan", "is_write", "message", "node", "partition", "slot", "uncertain",
    )  # fmt: skip

    def __init__(self, slot: Slot, message: Forward, partition: int) -> None:
        self.slot = slot
        self.message = message
        self.partition = partition
        self.is_write = slot.command.is_write
        self.is_scan = isinstance(slot.command.handler, PartOfScan)
        self.node = ""  # the agent that has it; empty: none at present
        self.uncertain = False
        self.again_ms = 0  # when to ask again; 0: not by time


class Forwards:
    """The commands that one zone's endpoint has forwarded, and executes for other agents.

    `execute(client, call)` executes a command for a client of another agent, whose `endpoint` and
    `services` are those of clients here."""

    def __init__(
        self,
        answers: Answers,
        parking: Parking,
        endpoint: ClientEndpoint,
        services: AgentServices,
        execute: Callable[[ClientConnection, Call], None],
        process: str,
        send: Callable[[str, Message], None],
    ) -> None:
        self._answers = answers
        self._parking = parking
        self._endpoint = endpoint
        self._services = services
        self._execute = execute
        self._replicas = answers.replicas
        self._boot_ms = answers.clock.boot_ms
        self._process = process  # a word that no other process has
        self._send = send
        self.is_leaving = False  # this agent is about to end: clients are redirected
        self._requests: dict[Slot, _Request] = {}
        self._by_number: dict[int, _Request] = {}
        self._next = 1

    # --- for our clients -------------------------------------------------------------------------

    def covers(self, partition: int, now_ms: int) -> bool:
        """Return whether this agent lost the partition's primary so recently that commands are
        forwarded."""
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
        """Return whether to forward a command that was not forwarded before.

        Commands that another agent has forwarded are not forwarded on.  Nor is WATCH, which decides
        which agent coordinates the transaction."""
        handler = command.handler
        if isinstance(client, ForwardedClient) or command.name == b"watch":
            return False
        if isinstance(handler, PartOfScan):
            return True  # the scanning client cannot reach those keys otherwise
        queued = handler.queued if isinstance(handler, Execution) else [(command, args)]
        if any(map(_changes_connection, (each for each, _ in queued))):
            return False  # the connection they change is here
        size = sum(len(word) for _, words in queued for word in words)
        return size <= WORDS_BYTES_MAX and self.covers(partition, now_ms)

    def came_before_its_row(self, client: ClientConnection, primary: str) -> bool:
        """Return whether `primary` is the agent that forwards for this client.

        Then our row is older than the one that made it forward, and a redirect would lead in a
        circle."""
        return isinstance(client, ForwardedClient) and client.agent == primary

    def take_on(self, slot: Slot, partition: int, primary: str) -> None:
        """Send the slot's command to `primary`, for the first time or again."""
        request = self._requests.get(slot)
        if request is None:
            command, message = slot.command, self._message(slot)
            request = _Request(slot, message, partition)
            self._requests[slot] = self._by_number[message.number] = request
            if command.is_write:
                key = request_key(self._process, message.number)
                slot.command = remembering(command, key, partial(self._no_room, request))
        request.node = primary
        left_ms = (slot.deadline_ms - self._boot_ms()) * RATE_PERCENT_MIN // 100
        heard_ms = self._replicas.leases.heard(primary)
        attempt = msgspec.structs.replace(request.message, heard_ms=heard_ms, left_ms=left_ms)
        self._send(primary, attempt)

    def _no_room(self, request: _Request) -> bytes:
        """Return the error reply to a request that is executed here, if there is no room; else
        b""."""
        problem = self._answers.no_room()
        return replies.UNKNOWN_OUTCOME if problem and request.uncertain else problem

    def may_be_executed(self, slot: Slot) -> bool:
        """Return whether another agent has or had the slot's command and may execute it."""
        request = self._requests.get(slot)
        return request is not None and request.uncertain

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
        """Return whether the slot's command has been forwarded before."""
        return slot is not None and slot in self._requests

    def take_reply(self, node: str, message: Forwarded) -> None:
        """Take the answer of an agent, which may be that it could not execute the command."""
        request = self._by_number.get(message.number)
        if request is None or message.process != self._process or not request.node:
            return
        reply = message.reply
        if request.node != node and not _is_outcome(reply):
            return  # an earlier attempt's, and another agent has been asked since
        if reply == replies.UNKNOWN_OUTCOME:
            self._ask_again(request, executed=True)
        elif reply == replies.CLUSTERDOWN:
            request.node = ""
            request.again_ms = self._boot_ms() + self._replicas.settings.step_retry_ms
        elif reply.startswith(b"-MOVED ") and (request.uncertain or request.is_scan):
            self._ask_again(request, executed=False)
        elif request.uncertain and replies.is_no_room(reply):
            request.again_ms = self._boot_ms() + self._replicas.settings.step_retry_ms
        else:
            self._forget(request)
            client = request.slot.connection
            if request.is_write:
                client.written |= 1 << request.partition
            self._answers.fulfil(client, request.slot, reply)

    def _ask_again(self, request: _Request, executed: bool) -> None:
        request.node, request.again_ms = "", 0
        request.uncertain |= executed and request.is_write
        self._parking.park_again(request.slot)

    def peer_down(self, node: str) -> None:
        """Ask again for everything sent to this agent: its answers are lost with the link."""
        for request in list(self._requests.values()):
            if request.node == node:
                self._ask_again(request, executed=True)

    def table_changed(self) -> None:
        """Ask again where the rows now name another primary."""
        for request in list(self._requests.values()):
            primary = self._replicas.primary_of(request.partition)
            if request.node and primary and request.node != primary:
                self._ask_again(request, executed=True)
            elif not request.node and request.again_ms:
                self._ask_again(request, executed=False)

    def tick(self, now_ms: int) -> None:
        """Give up requests past their deadline, forget answered ones, and ask again those that are
        due.

        A write is begun before its deadline, or declined.  So its outcome is waited for as long
        again: the agent that has it may only wait for acknowledgements."""
        longer_ms = self._replicas.park_bound_ms
        for request in list(self._requests.values()):
            slot = request.slot
            waits_ms = slot.deadline_ms + (longer_ms if request.is_write else 0)
            if slot.done:
                self._forget(request)  # not earlier: it may have to be forwarded again
            elif request.node and waits_ms <= now_ms:
                request.uncertain |= request.is_write
                self.give_up(slot)
            elif request.again_ms and request.again_ms <= now_ms:
                self._ask_again(request, executed=False)

    def give_up(self, slot: Slot) -> None:
        """Answer a command whose time is over: -CLUSTERDOWN, or -UNKNOWN if it may have been
        executed."""
        reply = replies.CLUSTERDOWN
        request = self._requests.get(slot)
        if request is not None:
            self._forget(request)
            if request.uncertain:
                reply = replies.UNKNOWN_OUTCOME
        self._answers.fulfil(slot.connection, slot, reply)

    def client_gone(self, client: ClientConnection) -> None:
        """Forget the requests of a client that is gone; they go on, their answers are dropped."""
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
        """Execute what another agent asks for its client."""
        self._replicas.wake()

        def respond(reply: bytes) -> None:
            if len(reply) > REPLY_BYTES_MAX:
                reply = _TOO_LARGE
            self._send(node, Forwarded(message.zone, message.process, message.number, reply))

        until_ms = message.heard_ms + message.left_ms
        leases = self._replicas.leases
        if until_ms <= self._boot_ms() or not leases.sent_heartbeat(node, message.heard_ms):
            respond(replies.CLUSTERDOWN)  # not executed, so the other agent may ask again
            return
        client = ForwardedClient(self._endpoint, self._services, node, respond, message, until_ms)
        call = _call(message, client.session)
        if isinstance(call, bytes):
            respond(call)
            return
        if call.command.is_write:
            key = request_key(message.process, message.number)
            no_room = self._answers.no_room
            call = Call(remembering(call.command, key, no_room), call.args)
        self._execute(client, call)


def _is_outcome(reply: bytes) -> bool:
    """Return whether the reply says what became of the command, whichever attempt it was.

    Else it says only that this attempt was not executed, or that its outcome is unknown.
    """
    is_open = reply in (replies.UNKNOWN_OUTCOME, replies.CLUSTERDOWN) or replies.is_no_room(reply)
    return not is_open and not reply.startswith(b"-MOVED ")


class ForwardedClient(ClientConnection):
    """Stands for a client of agent `agent` while one of its commands is executed here.

    That client waits until `until_ms` (boot ms of this agent)."""

    __slots__ = ("_respond", "_until_ms", "agent")

    def __init__(
        self,
        endpoint: ClientEndpoint,
        services: AgentServices,
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
        self.session = Session(self.state, services)

    def waits_no_more(self, now_ms: int) -> bool:
        """Return whether the other agent has given up on the command by now."""
        return self._until_ms <= now_ms

    def write(self) -> None:
        """Send the reply."""
        reply = b"".join(self.out)
        self.out.clear()
        self._respond(reply)


def _changes_connection(command: Command) -> bool:
    if command.group == "connection":
        return command.name not in (b"ping", b"echo")
    return command.name in (b"readonly", b"readwrite")


def _call(message: Forward, session: Session) -> Call | bytes:
    """Return the call that a Forward asks for, or the error reply if it is no valid command."""
    found = resolve_all(message.commands)
    if isinstance(found, bytes):
        return found
    if not message.transaction:
        return Call(*found[0])

    watched = {key: (term, counter) for key, term, counter in message.watched}
    return Execution(found, watched, InTransaction(session)).call()
