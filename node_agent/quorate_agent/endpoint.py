"""Which commands of a zone's clients are answered now, wait, are redirected or parked.

One endpoint per zone: a listener, its connections, and the road from a parsed command to the
replicas and back.  Nothing is awaited per command: what has to wait leaves a slot in its
connection's queue, and replies leave in the order of the commands, one write per turn.
"""

from __future__ import annotations

import time
from binascii import crc_hqx
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, cast

from quorate.facts.keyspace import TAG, is_reserved, key_slot, slot_shift
from quorate.protocol.messages import Message
from quorate.protocol.primary import Primary
from quorate.protocol.replicas import Replicas
from quorate.protocol.storage import Operation
from quorate_agent.across import Across
from quorate_agent.alike import shows_expiry
from quorate_agent.client import ClientConnection, Slot, boot_ms
from quorate_agent.flush import flush_all, may_flush
from quorate_agent.forwards import Forwards
from quorate_agent.hand_overs import HandOvers
from quorate_agent.joined_reads import join_reads, read_one
from quorate_agent.joined_writes import join_puts, join_writes
from quorate_agent.listener import Listener
from quorate_agent.outcomes import Outcomes
from quorate_agent.overview import ZoneOverview
from quorate_agent.parking import Parking
from quorate_agent.redirects import Redirects
from quorate_agent.resp import replies
from quorate_agent.resp.cluster_commands import TABLES
from quorate_agent.resp.command import Command, command_slot
from quorate_agent.resp.pubsub_commands import refused_while_subscribed
from quorate_agent.resp.session import WaitRequest
from quorate_agent.resp.table import DISPATCH, resolve
from quorate_agent.resp.transaction import Call
from quorate_agent.resp.view import View
from quorate_agent.turn_share import QUANTUM, TurnShare
from quorate_agent.waits import Waits

if TYPE_CHECKING:
    from quorate_agent.metrics import AgentMetrics


class ZoneEndpoint:
    """All clients of one zone on this agent."""

    def __init__(
        self,
        replicas: Replicas,
        node: str,
        turn: Callable[[], None],
        nodes: Callable[[], dict[str, tuple[str, int]]],
        is_up: Callable[[str], bool],
        metrics: AgentMetrics,
        storage_full: Callable[[], bool],
        process: str,
        send: Callable[[str, Message], None],
    ) -> None:
        self.replicas = replicas
        self._turn = turn
        self._clients: dict[int, ClientConnection] = {}
        self.overview = ZoneOverview(replicas, node, nodes, is_up, self._clients)
        self._tracking = self.overview.tracking
        self.forwards = Forwards(self, process, send)
        self._metrics = metrics
        self._storage_full = storage_full
        self._shift = slot_shift(replicas.zone.partitions)
        self._primaries = replicas.primaries
        self._view = View()
        self._next_id = 1
        self.parking = Parking(replicas.settings.park_bound_ms, metrics)
        self.across = Across(self, turn, metrics)
        self._redirects = Redirects(self, nodes, is_up, metrics)
        self.hand_overs = HandOvers(replicas, self._clients.values, nodes)
        self._waits = Waits(replicas, self.fulfil)
        self._share = TurnShare()
        self._touched: dict[ClientConnection, None] = {}
        self._outcomes = Outcomes(replicas, metrics, self._full)
        self._listener = Listener(self)

    # --- listening -------------------------------------------------------------------------------

    async def listen(self, host: str, ports: Iterable[int]) -> int:
        """Listen on the first of `ports` that is free; OSError when none is."""
        port = await self._listener.listen(host, ports)
        self.overview.address = (host, port)
        return port

    async def close(self, *, at_once: bool = False) -> None:
        """Stop listening and end every connection; `at_once`: nothing more is said to anybody."""
        await self._listener.close(list(self._clients.values()), at_once=at_once)

    def connected(self, client: ClientConnection) -> None:
        """A client connected."""
        client.open(self._next_id, self.overview)
        self._clients[self._next_id] = client
        self.overview.clients[self._next_id] = client.state
        self._next_id += 1
        self._metrics.connections.inc()

    def disconnected(self, client: ClientConnection) -> None:
        """A client went away; what it asked for goes on, its replies have nowhere to go."""
        self.overview.clients.pop(client.state.id, None)
        if self._clients.pop(client.state.id, None) is not None:
            self._metrics.connections.dec()
        client.backlog.clear()
        client.unread = b""
        client.half_closed_ms = client.half_closed_ms or boot_ms()
        self._share.client_gone(client)
        self.forwards.client_gone(client)
        self.parking.client_gone(client)
        self._waits.client_gone(client)

    def half_closed(self, client: ClientConnection) -> None:
        """A client sends no more: writes that are parked for it are given up in this turn."""
        if self.parking:
            self._turn()

    # --- commands --------------------------------------------------------------------------------

    def run(self, client: ClientConnection, commands: list[list[bytes]]) -> None:
        """Execute commands of one connection in order, until one blocks it; uses the list up."""
        now, view, count = self._begin_run(client), self._view, len(commands)
        if count > QUANTUM or not self._share.takes(count):
            if self._share.keep(client, commands, now):
                self._turn()
            return
        if count == 1 and (
            said := read_one(client.state, view, commands[0], self._primaries, self._shift, now)
        ):
            (client.queue or client.out).append(said)  # `client.answer`
            return
        self.parking.arrived_ms = now
        commands.reverse()
        self._execute_all(client, commands, now)
        if client.blocked:
            client.backlog.extend([(now, later) for later in reversed(commands)])
        elif commands and not client.state.closing:  # there was no time for them
            self._share.keep(client, commands[::-1], now)
            self._turn()

    def cut(self, client: ClientConnection) -> None:
        """Cut what was read into commands and execute them, in this turn or when there is time."""
        if self._share.cuts(client):
            client.take_in()
        else:
            self._turn()

    def _run_backlog(self, client: ClientConnection) -> None:
        """Execute what came while the connection was blocked, until a command blocks it again.

        A command's wait for a primary counts from when it came, else a pipeline of them would wait
        one bound after the other.
        """
        now = self._begin_run(client)
        backlog, left = client.backlog, QUANTUM
        if client.is_late(now, self.replicas.settings.park_bound_ms):
            client.refuse(replies.CLUSTERDOWN)
        while backlog and not client.blocked and not client.state.closing:
            if not left:
                self._touched[client] = None  # others first
                return
            arrived, some = client.take_backlog(left)
            self.parking.arrived_ms = arrived
            left -= len(some)
            self._execute_all(client, some, now)
            backlog.extendleft([(arrived, later) for later in some])
            if client.blocked or client.state.closing or not backlog:
                return
            if some or not self._share.has_time():
                self._share.keep(client, (), now)
                return

    def _execute_all(self, client: ClientConnection, commands: list[list[bytes]], now: int) -> None:
        """Execute commands, the last of the list first, and take them from it, until one blocks or
        ends the connection."""
        state = client.state
        while commands and not (client.blocked or state.closing):
            if state.in_mode:
                self._execute_in_mode(client, commands.pop(), now)
            elif len(commands) > 1 and (
                said := join_reads(self._view, commands, self._primaries, self._shift, now)
            ):
                client.answer(said)
            elif len(commands) < 2 or not self._put_each(client, commands, now):
                self._execute_each(client, commands, now)
            if not self._share.has_time():
                return

    def _execute_in_mode(self, client: ClientConnection, args: list[bytes], now: int) -> None:
        """Execute, as a connection may that has subscribed, tracks, or has said MULTI."""
        state, refused = client.state, b""
        if state.subscribed and not isinstance(command := resolve(args), bytes):
            refused = refused_while_subscribed(state, command)
        if refused:
            client.answer(refused)
            return
        tracks = state.tracking is not None or state.transaction is not None
        if tracks:
            self._tracking.before(client, args, now)
        if state.transaction is None:
            self._execute(client, args, now, None)
        else:
            self._queue(client, args, now)
        if tracks:
            self._tracking.after(client, args)

    def _begin_run(self, client: ClientConnection) -> int:
        view = self._view
        view.now_ms = time.time_ns() // 1_000_000
        client.state.last_ms = view.now_ms
        view.resp3 = client.state.resp3
        return boot_ms()

    def _execute(
        self,
        client: ClientConnection,
        args: list[bytes],
        now: int,
        slot: Slot | None,
        command: Command | None = None,
    ) -> None:
        """One command alone; `slot` is its place when it waited before."""
        self._execute_each(client, [args], now, slot, command)

    def _execute_each(
        self,
        client: ClientConnection,
        commands: list[list[bytes]],
        now: int,
        slot: Slot | None = None,
        known: Command | None = None,
    ) -> None:
        """As `_execute_all`, also until one changes the connection's mode.  Of one alone `slot` and
        `known` may be given: its place, and which command it is."""
        view, primaries, shift = self._view, self._primaries, self._shift
        queue, out = client.queue, client.out
        keys: tuple[bytes | None, ...]
        at = -1  # the partition that `role` and `view` show; whatever may change that takes it back
        is_first = True
        while commands:
            if is_first:
                is_first = False
            elif not self._share.has_time():
                return
            args = commands.pop()
            command = known or DISPATCH.get(args[0])
            if command is None or (command.usual_words != len(args) and command is not known):
                resolved = resolve(args)
                if isinstance(resolved, bytes):
                    client.answer(resolved)
                    continue
                command = resolved
            if command.single_key:
                key = args[1]
                number = key_slot(key) if TAG in key else crc_hqx(key, 0) & 16383
                if key < b"\1" and is_reserved(key):
                    self.fulfil(client, slot, replies.RESERVED_KEY)
                    continue
            elif not command.is_keyed:
                at = -1
                self._execute_other(client, command, args, now, slot)
                if client.blocked or client.state.closing or client.state.in_mode:
                    return
                continue
            else:
                if any(map(is_reserved, command.keys(args))):
                    self.fulfil(client, slot, replies.RESERVED_KEY)
                    continue
                number = command_slot(command, args)
                if number < 0:
                    at = -1
                    number = self.across.take_on(client, command, args, now, slot)
                    if number < 0:
                        if client.blocked:
                            return
                        continue
            partition = number >> shift
            if partition != at:  # else nothing has changed since the command before
                at = -1
                found = primaries[partition]
                if found is None or found.serving_until <= now or found.frozen:
                    copy = self._redirects.readable(client, command, partition)
                    if copy is None:
                        self._redirects.send_on(client, command, args, number, now, slot)
                        if client.blocked:
                            return
                        continue
                    view.is_pending = None
                    view.copy = copy
                    self.fulfil(client, slot, command.handler(view, args))
                    view.operations.clear()
                    continue
                role = found
                if role.locks and not role.locks.keys().isdisjoint(command.keys(args)):
                    self.parking.park(client, command, args, now, slot, role)  # until it is decided
                    return
                view.is_pending = role.is_pending if role.waiters else None
                view.copy = role.copy
                if not role.locks:
                    at = partition
            if role.changed is not None:
                self.expire(role, command.keys(args), view.now_ms)
                view.is_pending = role.is_pending if role.waiters else None
            if command.grows and (problem := self.no_room()):
                self.fulfil(client, slot, problem)
                continue
            reply = command.handler(view, args)
            if view.operations:
                count = 1
                if commands and command.joins and at >= 0:
                    reply, count = join_writes(view, commands, command, reply, at, shift)
                operations = tuple(view.operations)
                view.operations.clear()
                keys = self._write(client, role, operations)
            elif view.waits:
                keys, count = (), 1
                self._turn()
            elif slot is None:
                (queue or out).append(reply)  # `client.answer`, of which there are many
                continue
            else:
                self.fulfil(client, slot, reply)
                continue
            view.waits = False
            if slot is None:
                waiter = Slot(client, command, args, reply, keys, now, count)
                queue.append(waiter)
            else:
                waiter = slot
                slot.keys, slot.reply = keys, reply
                self._unblock(slot)
            role.wait(waiter)
            view.is_pending = role.is_pending

    def expire(self, role: Primary, keys: Iterable[bytes], now_ms: int) -> None:
        """Keys are about to be shown: have those told that have expired."""
        if shows_expiry(role, now_ms):
            self._tracking.expire(role, keys, now_ms)
            self._turn()

    def _put_each(self, client: ClientConnection, commands: list[list[bytes]], now: int) -> bool:
        """Execute the first of some commands when they only put values; False: they are to be
        executed one by one."""
        primaries = self._primaries
        puts = join_puts(commands, primaries, self._shift, now)
        if puts is None or self.no_room():
            return False
        command, count, partitions, by_partition = puts
        for partition, last in by_partition.items():
            role = cast(Primary, primaries[partition])  # it serves
            keys = self._write(client, role, tuple(zip(last, last.values(), repeat(0))))
        if len(partitions) == 1:
            slot = Slot(client, command, commands[-1], replies.OK * count, keys, now, count)
            client.queue.append(slot)
            role.wait(slot)
        else:
            for partition, args in zip(partitions, reversed(commands), strict=False):
                role = cast(Primary, primaries[partition])
                slot = Slot(client, command, args, replies.OK, (args[1],), now)
                client.queue.append(slot)
                role.wait(slot)
            client.last_write = (role, role.copy.lwm)
        del commands[-count:]
        return True

    def _write(
        self, client: ClientConnection, role: Primary, operations: tuple[Operation, ...]
    ) -> tuple[bytes | None, ...]:
        """Make them one update; the keys whose acknowledgement is due."""
        if not role.turn:
            self.replicas.commands_wrote(role)
            self._turn()
        client.last_write = (role, role.write(operations))
        if len(operations) == 1:
            return (operations[0][0],)
        return tuple([key for key, _, _ in operations])

    def _queue(self, client: ClientConnection, args: list[bytes], now: int) -> None:
        """A command after MULTI: kept for EXEC, unless it is wrong or another node's."""
        command = resolve(args)
        if isinstance(command, Command) and command.ends_queueing:
            self._execute(client, args, now, None, command)
        else:
            client.answer(self._redirects.queue(client, command, args))

    def no_room(self) -> bytes:
        """Why nothing may grow now; empty: it may."""
        return self._full() if self._storage_full() else b""

    def _full(self) -> bytes:
        return replies.MISCONF if self.replicas.zone.persistent else replies.OOM

    def fulfil(self, client: ClientConnection, slot: Slot | None, reply: bytes) -> None:
        """Answer: at once, or in the place where the reply is waited for."""
        if slot is None:
            client.answer(reply)
            return
        slot.reply = reply
        slot.done = True
        self._touched[client] = None
        self._unblock(slot)
        if reply == replies.CLUSTERDOWN:
            self._metrics.clusterdown.inc()
        if client.half_closed_ms and reply in (replies.CLUSTERDOWN, replies.UNKNOWN_OUTCOME):
            client.refuse(replies.CLUSTERDOWN)  # what is behind it is late as well

    def _unblock(self, slot: Slot) -> None:
        client = slot.connection
        if slot.deadline_ms:
            slot.deadline_ms = 0
            client.blocked -= 1
            self._touched[client] = None

    def execute_forwarded(self, client: ClientConnection, call: Call) -> None:
        """Execute for a client of another agent."""
        now = self.parking.arrived_ms = self._begin_run(client)
        self._execute(client, call.args, now, None, call.command)
        if client.out:
            client.write()

    def _execute_other(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now: int,
        slot: Slot | None,
    ) -> None:
        if command.name in TABLES and self.overview.expects_primary(now):
            # A table that names a dead agent sends clients there, and some give up over it.
            self.parking.park(client, command, args, now, slot)
            return
        answer = command.handler(client.session, args)
        if isinstance(answer, Call):
            self._execute(client, answer.args, now, slot, answer.command)
            return
        if isinstance(answer, bytes):
            self._view.resp3 = client.state.resp3
            self.fulfil(client, slot, answer)
            return
        if answer is None and not may_flush(self.replicas, now):
            self.parking.park(client, command, args, now, slot)
            return
        if slot is None:
            slot = Slot(client, command, args, replies.OK, (), now)
            client.queue.append(slot)
        else:
            slot.reply = replies.OK
            self._unblock(slot)
        if isinstance(answer, WaitRequest):
            slot.wait = answer
            self._waits.add(slot, now)
            self._turn()
            return
        self._tracking.flushed()
        flush_all(self.replicas, slot, now)
        self._touched[client] = None
        self._turn()

    # --- the turn --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take what the replicas finished, retry what is parked, write what is ready."""
        if self._tracking.has_to_tell:
            self._tracking.tell(boot_ms())
        again = self._outcomes.take(self._touched)
        now = boot_ms()
        if again:
            self._view.now_ms = time.time_ns() // 1_000_000
            for slot in again:
                self.parking.arrived_ms = slot.since_ms
                self._execute_again(slot, now)
        self.parking.arrived_ms = now
        if self.parking:
            self._view.now_ms = time.time_ns() // 1_000_000
            give_up = self.forwards.give_up
            self.parking.retry(now, lambda slot: self._execute_again(slot, now), give_up)
        if self.across.has_news:
            self.across.settle()
        if self._waits:
            self._waits.check(now)
        if self.hand_overs.has_news:
            self.hand_overs.tell(now)
        if self.forwards.has_waiting:
            self.forwards.tick(now)
        self._share.begin(self._touched)
        while self._touched:
            batch, self._touched = self._touched, {}
            for client in batch:
                client.take_ready()
                if client.paused and client.backlog:
                    client.waits_no_more(now)  # so that it is known when it closed its side
                if not client.blocked and client.backlog:
                    if not client.has_room():
                        client.drain()
                        continue  # until the first of its queue is answered
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
        if self._share.is_over or self.replicas.wrote or self.replicas.out.at_once:
            self._turn()

    def _execute_again(self, slot: Slot, now: int) -> None:
        client = slot.connection
        # Its client is gone, or may have asked another agent meanwhile?
        if not self.parking.waited_for_lock(slot, now) and client.waits_no_more(now):
            if slot.command.is_write or client.state.id not in self._clients:
                self.forwards.give_up(slot)
                return
            if slot.deadline_ms:
                client.refuse(replies.CLUSTERDOWN)  # what is behind a read that is parked
        self._view.resp3 = client.state.resp3
        self._execute(client, slot.args, now, slot, slot.command)

    @property
    def has_waiting(self) -> bool:
        """Whether time alone may finish something here."""
        return bool(
            self.parking or self._waits or self.forwards.has_waiting or self.hand_overs.has_news
        )

    def table_changed(self) -> None:
        """Rows, members or ports changed: the cluster view is built anew when asked for."""
        self.overview.table_changed()
        self.forwards.table_changed()
