"""Executes the commands of a zone's clients in turns, and releases their replies.

Each zone has one endpoint: a listener, its connections, and what each turn does with them.
`execution.py` decides how a command is executed; commands that had to wait there come back here.
Replies leave in the order of the commands, in one write per turn.

The reply of a write is released once a quorum has it: `Primary.advance` (called when an Ack comes
in, and when this agent's own sync is done) puts its waiter into `Replicas.finished`, `settle` has
`Outcomes.take` mark the reply as done, and `ClientConnection.take_ready` sends it with those before
it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from quorate.facts.keyspace import slot_shift
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.messages.message import Message
from quorate_agent.clients.addresses import ClientAddresses
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.clients.listener import Listener
from quorate_agent.clients.memory import ClientMemory
from quorate_agent.clients.meter import ERROR, EVERY_READ
from quorate_agent.clients.turn_share import LARGE_BYTES, OVERLOADED, QUANTUM, TurnShare
from quorate_agent.commands.answers import Answers, failure
from quorate_agent.commands.execution import LONG_BYTES, CommandExecution
from quorate_agent.commands.large_commands import LargeCommands, is_exec
from quorate_agent.commands.outcomes import Outcomes
from quorate_agent.commands.pipeline.joined_reads import read_one
from quorate_agent.commands.routing.across import Across
from quorate_agent.commands.routing.forwards import Forwards
from quorate_agent.commands.routing.parking import Parking
from quorate_agent.commands.routing.redirects import Redirects
from quorate_agent.commands.waits import Waits
from quorate_agent.commands.zone.key_lists import KeyLists
from quorate_agent.commands.zone.overview import ZoneOverview
from quorate_agent.machine.clock import Clock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.metrics import AgentMetrics
from quorate_agent.notices.hand_overs import HandOvers
from quorate_agent.resp import replies
from quorate_agent.resp.command import READ
from quorate_agent.resp.transaction import Call
from quorate_agent.resp.view import View


class ZoneEndpoint:
    """All clients of one zone on this agent."""

    def __init__(
        self,
        replicas: Replicas,
        node: str,
        turn: Callable[[], None],
        nodes: ClientAddresses,
        is_up: Callable[[str], bool],
        metrics: AgentMetrics,
        why_full: Callable[[], str],
        process: str,
        send: Callable[[str, Message], None],
        clock: Clock,
        memory: ClientMemory | None = None,
        large: LargeCommands | None = None,
        share: TurnShare | None = None,
    ) -> None:
        self.replicas = replicas
        self.clock = clock
        self._boot_ms, self._wall_ms = clock.boot_ms, clock.wall_ms
        self.memory = memory or ClientMemory()
        self._large = LargeCommands() if large is None else large  # it is false while none waits
        self._turn = turn
        self._clients: dict[int, ClientConnection] = {}
        self._share = share or TurnShare(clock.passed_s)
        self._slow_log = self._share.slow_log
        self.overview = ZoneOverview(
            replicas, node, nodes, is_up, self._clients, process, clock, self._slow_log
        )
        self._tracking = self.overview.tracking
        self._metrics = metrics
        self._shift = slot_shift(replicas.record.partitions)
        self._primaries = replicas.primaries
        self._surveys = replicas.surveys
        self._view = View()
        self._next_id = 1
        self._passed_s = clock.passed_s
        self._meter = meter = metrics.meter(replicas.record.uid, clock.passed_s)
        self.answers = answers = Answers(
            replicas, self._tracking, metrics, meter, turn, why_full, clock
        )
        self.parking = parking = Parking(replicas, metrics, meter)
        self.forwards = Forwards(
            answers, parking, self, self.overview, self.execute_forwarded, process, send
        )
        self.across = across = Across(answers, parking, metrics)
        self.hand_overs = HandOvers(replicas, self._clients.values, nodes, clock)
        self._waits = Waits(replicas, answers.fulfil)
        self._key_lists = KeyLists(
            replicas, self.overview.scan, answers.fulfil, self._took, clock.passed_s, failure
        )
        redirects = Redirects(answers, parking, self.forwards, across, self.overview, metrics)
        self._execution = CommandExecution(
            answers,
            parking,
            across,
            self.overview,
            self._view,
            redirects,
            self._waits,
            self._key_lists,
            self._share,
            self._large,
        )
        self._outcomes = Outcomes(answers, metrics, self.forwards.may_be_executed)
        self._listener = Listener(self)
        replicas.clients_have_work = self.has_work

    # --- listening -------------------------------------------------------------------------------

    async def listen(
        self, host: str, sockets: Sequence[socket.socket], descriptors: Descriptors
    ) -> int:
        """Accept clients of `host` on these sockets, which listen already; return the port of the
        first.

        Sockets on another port belong to the external listener."""
        port: int = sockets[0].getsockname()[1]
        self.overview.address = (host, port)
        await self._listener.listen(sockets, port, descriptors)
        return port

    @property
    def park_bound_ms(self) -> int:
        """The longest time for which commands wait for a primary."""
        return self.replicas.park_bound_ms

    def has_address(self, external: bool) -> bool:
        """Return whether the address at which this listener's clients reach this agent is known."""
        return self.overview.has_address(external)

    async def close(self, *, at_once: bool = False) -> None:
        """Stop listening and end every connection; with `at_once`, without an orderly end."""
        await self._listener.close(list(self._clients.values()), at_once=at_once)

    def connected(self, client: ClientConnection) -> None:
        """Give a new client its state and session."""
        self.replicas.wake()
        if not self._clients:
            self._share.begin(self.answers.touched)  # a zone at rest has not begun its turns
        client.open(self._next_id, self.overview)
        self._clients[self._next_id] = client
        self.overview.clients[self._next_id] = client.state
        self._next_id += 1
        self.overview.connection_count += 1
        self._metrics.connections.inc()

    def disconnected(self, client: ClientConnection) -> None:
        """Forget a client.  What it asked for goes on; the replies are dropped."""
        self.overview.clients.pop(client.state.id, None)
        if self._clients.pop(client.state.id, None) is not None:
            self._metrics.connections.dec()
        client.backlog.clear()
        client.unread = b""
        client.parser.close()
        self.memory.forget(client)
        self._large.client_gone(client, self._boot_ms())
        client.half_closed_ms = client.half_closed_ms or self._boot_ms()
        self._share.client_gone(client)
        self.forwards.client_gone(client)
        self.parking.client_gone(client)
        self._waits.client_gone(client)
        self._key_lists.client_gone(client)

    def half_closed(self, client: ClientConnection) -> None:
        """Have the client's parked writes given up in this turn: it sends no more."""
        if self.parking:
            self._turn()

    # --- commands --------------------------------------------------------------------------------

    def run(self, client: ClientConnection, commands: list[list[bytes]]) -> None:
        """Execute commands of one connection in order until one blocks it; consumes the list."""
        now, view, count = self._begin_run(client), self._view, len(commands)
        meter, client.arrived = self._meter, self._passed_s()
        self._share.command_began = client.arrived
        if count > QUANTUM or not self._share.takes(count):
            if self._share.keep(client, commands, now):
                self._turn()
            else:
                meter.refused(OVERLOADED, count)
            return
        if (
            count == 1
            and not self._slow_log.is_close
            and (
                said := read_one(
                    client.state,
                    view,
                    commands[0],
                    self._primaries,
                    self._surveys,
                    self._shift,
                    now,
                )
            )
        ):
            (client.queue or client.out).append(said)  # `client.answer`
            meter.lone_reads += 1
            if not meter.lone_reads % EVERY_READ:
                meter.lone_read(client.arrived)
            if said[0] == ERROR:
                meter.fail(READ, said)
            elif len(said) > LONG_BYTES:
                self._execution.look(client, commands[0])
            return
        self.parking.arrived_ms = now
        commands.reverse()
        self._execution.execute_all(client, commands, now)
        if meter.at_once:
            meter.end(client.arrived)
        if client.blocked:
            client.backlog.extend([(now, later) for later in reversed(commands)])
        elif commands and not client.state.closing:  # the turn had no time for them
            self._share.keep(client, commands[::-1], now)
            self._turn()

    def cut(self, client: ClientConnection) -> None:
        """Cut what was read into commands and execute them, in this turn or a later one."""
        if self._share.cuts(client):
            client.take_in()
        else:
            self._turn()

    def large_came(self, client: ClientConnection, commands: list[list[bytes]]) -> bool:
        """Let the connection wait for its turn if one of the commands is large; return whether it
        waits."""
        size, largest = max(
            ((_size_of(client, command), command) for command in commands),
            key=lambda each: each[0],
            default=(0, []),
        )
        if size < LARGE_BYTES:
            return False
        client.execute_later(commands)
        self._large.wait(client, largest, size, self._boot_ms())
        self.go_on(client)
        return True

    def go_on(self, client: ClientConnection) -> None:
        """Have the turn's end execute the backlog of a connection that is no longer blocked."""
        self.answers.touched[client] = None
        self._turn()

    def _run_backlog(self, client: ClientConnection) -> None:
        """Execute what came while the connection was blocked, until a command blocks it again.

        A command's wait for a primary counts from its arrival.  Otherwise a pipeline would wait for
        one bound after the other.
        """
        now = self._begin_run(client)
        backlog, left = client.backlog, QUANTUM
        if client.is_late(now, self.replicas.park_bound_ms):
            client.refuse(replies.CLUSTERDOWN)
        while backlog and not client.blocked and not client.state.closing:
            if not left:
                self.answers.touched[client] = None  # other connections go first
                return
            arrived, some = client.take_backlog(left)
            self.parking.arrived_ms = arrived
            self._share.command_began = began = self._passed_s()
            client.arrived = began - (now - arrived) / 1000
            left -= len(some)
            self._execution.execute_all(client, some, now)
            self._meter.end(client.arrived)
            backlog.extendleft([(arrived, later) for later in some])
            if client.blocked or client.state.closing or not backlog:
                return
            if some or not self._share.has_time():
                self._share.keep(client, (), now)
                return

    def execute_forwarded(self, client: ClientConnection, call: Call) -> None:
        """Execute a command for a client of another agent."""
        now = self.parking.arrived_ms = self._begin_run(client)
        client.arrived = self._passed_s()
        self._execution.execute(client, call.args, now, None, call.command)
        self._meter.end(client.arrived)
        if client.out:
            client.write()

    def _begin_run(self, client: ClientConnection) -> int:
        view = self._view
        view.now_ms = self._wall_ms()
        client.state.last_ms = view.now_ms
        view.resp3 = client.state.resp3
        return self._boot_ms()

    def _took(self, slot: Slot, seconds: float) -> None:
        """Log a command that was executed in steps if it was slow."""
        state = slot.connection.state
        self._slow_log.note(slot.args, seconds, self._wall_ms(), state.addr, state.name)

    # --- the turn --------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Return whether `settle` may have anything to do apart from what the copies have finished.

        A zone has nothing to do without clients and without commands forwarded to it.  Large
        commands need no check here: their clients are clients of their own zone."""
        return bool(
            self._clients
            or self.answers.touched
            or self.parking
            or self.forwards.has_waiting
            or self.hand_overs.has_news
            or self._waits
            or self._key_lists
        )

    def settle(self) -> None:
        """Take what the replicas have finished, retry parked commands, write the replies that are
        ready."""
        if self._tracking.has_to_tell:
            self._tracking.tell(self._boot_ms())
        again = self._outcomes.take()
        now = self._boot_ms()
        if again:
            self._view.now_ms = self._wall_ms()
            for slot in again:
                self.parking.arrived_ms = slot.since_ms
                self._execute_again(slot, now)
        self.parking.arrived_ms = now
        if self.parking:
            self._view.now_ms = self._wall_ms()
            give_up = self.forwards.give_up
            self.parking.retry(now, lambda slot: self._execute_again(slot, now), give_up)
        if self.replicas.transactions.has_news:
            self.across.settle()
        if self._waits:
            self._waits.check(now)
        if self._key_lists:
            self._key_lists.step(now)
        if self.hand_overs.has_news:
            self.hand_overs.tell(now)
        if self.forwards.has_waiting:
            self.forwards.tick(now)
        if self._large.running or self._large.waiting:  # calling its __bool__ each turn costs more
            self._large.look(now)
        self._share.begin(self.answers.touched)
        while self.answers.touched:
            for client in self.answers.take_touched():
                client.take_ready()
                if client.paused and client.backlog:
                    client.waits_no_more(now)  # notes when the client closed its side
                if not client.blocked and client.backlog:
                    if not client.has_room():
                        client.drain()
                        continue  # until the first reply of its queue is there
                    if self._share.takes(min(len(client.backlog), QUANTUM)):
                        self._run_backlog(client)
                    else:
                        self._share.keep(client, (), now)
                if client.unread and not client.blocked and not client.backlog:
                    self.cut(client)
                client.drain()
                is_idle = not client.blocked and not client.backlog and not client.unread
                if client.paused and is_idle:
                    client.paused = False
                    client.transport.resume_reading()
                if client.ended and not client.state.closing:
                    client.end_when_done()
        goes_on = self._share.is_over or bool(self._key_lists)
        if goes_on or self.replicas.wants_turn:
            self._turn()

    def _execute_again(self, slot: Slot, now: int) -> None:
        client = slot.connection
        # A client that is gone or half-closed may have sent the command to another agent meanwhile.
        if not self.parking.waited_for_lock(slot, now) and client.waits_no_more(now):
            if slot.command.is_write or client.state.id not in self._clients:
                self.forwards.give_up(slot)
                return
            if slot.deadline_ms:
                client.refuse(replies.CLUSTERDOWN)  # refuses what is behind a parked read
        self._view.resp3 = client.state.resp3
        self._execution.execute(client, slot.args, now, slot, slot.command)

    @property
    def has_waiting(self) -> bool:
        """Whether the passing of time alone may finish something here."""
        return bool(
            self.parking
            or self._waits
            or self.forwards.has_waiting
            or self.hand_overs.has_news
            or self._large
        )

    @property
    def waits_for_others(self) -> bool:
        """Whether a command waits for a primary, or for the answer of the one that has it."""
        return bool(self.parking or self.forwards.has_waiting)

    def table_changed(self) -> None:
        """Have the cluster view rebuilt when it is next asked for: rows, members or ports have
        changed."""
        self.overview.table_changed()
        self.forwards.table_changed()


def _size_of(client: ClientConnection, command: list[bytes]) -> int:
    """Return the bytes of the command's words; of an EXEC those of all queued commands."""
    transaction = client.state.transaction
    if transaction is not None and is_exec(command):
        return transaction.bytes
    return sum(map(len, command))
