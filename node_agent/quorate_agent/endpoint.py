"""Which commands of a zone's clients are answered now, wait, are redirected or parked.

One endpoint per zone: a listener, its connections, and the road from a parsed command to the
replicas and back.  Nothing is awaited per command: what has to wait leaves a slot in its
connection's queue, and replies leave in the order of the commands, one write per turn.
"""

from __future__ import annotations

import asyncio
import time
from binascii import crc_hqx
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from quorate.facts.keyspace import key_slot, slot_shift
from quorate.protocol.copy import Copy
from quorate.protocol.messages import Operation
from quorate.protocol.primary import Primary, Stage, Waiter
from quorate.protocol.replicas import Replicas
from quorate.protocol.storage import Row
from quorate_agent.resp import replies
from quorate_agent.resp.cluster_view import ClusterNode, ClusterView
from quorate_agent.resp.command import Command, Scope, command_slot
from quorate_agent.resp.connection import CommandParser
from quorate_agent.resp.scan import ScanPositions
from quorate_agent.resp.session import Connection, Session, WaitRequest
from quorate_agent.resp.table import DISPATCH, resolve

if TYPE_CHECKING:
    from quorate_agent.metrics import AgentMetrics

BACKLOG_MAX = 1024
"""Commands a blocked connection may pile up before its socket is no longer read."""

OUTPUT_BYTES_MAX = 256 * 1024 * 1024
"""A client that does not read its replies is cut off above this."""

_boottime = time.CLOCK_BOOTTIME


def boot_ms() -> int:
    """Milliseconds on the clock that runs through suspension."""
    return time.clock_gettime_ns(_boottime) // 1_000_000


class Slot(Waiter):
    """The place of one reply in its connection's queue."""

    __slots__ = ("args", "command", "connection", "deadline_ms", "done", "left", "reply", "wait")

    def __init__(
        self,
        connection: ClientConnection,
        command: Command,
        args: list[bytes],
        reply: bytes,
        keys: tuple[bytes | None, ...],
        since_ms: int,
    ) -> None:
        # Waiter's fields are set here: this is made for every write.
        self.keys = keys
        self.counter = 0
        self.since_ms = since_ms
        self.connection = connection
        self.command = command
        self.args = args
        self.reply = reply
        self.done = False
        self.deadline_ms = 0
        self.left = 0
        self.wait: WaitRequest | None = None


class PartOfFlush(Waiter):
    """One partition's share of a FLUSHALL."""

    __slots__ = ("slot",)

    def __init__(self, slot: Slot, since_ms: int) -> None:
        super().__init__((None,), None, since_ms)
        self.slot = slot


class View:
    """A keyed handler's window on one copy: live rows only; writes are gathered."""

    __slots__ = ("get_row", "now_ms", "operations", "pending", "resp3", "waits")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.waits = False
        self.resp3 = False
        self.now_ms = 0
        self.pending: dict[bytes, int] = {}
        self.get_row: Callable[[bytes], Row | None] = _nothing

    def get(self, key: bytes) -> Row | None:
        """The live row of `key`; notes when its last write is not acknowledged yet."""
        if key in self.pending:
            self.waits = True
        row = self.get_row(key)
        if row is None or row.value is None or (row.expires_at and row.expires_at < self.now_ms):
            return None
        return row

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Set `key`."""
        self.operations.append((key, value, expires_at_ms))

    def delete(self, key: bytes) -> None:
        """Remove `key`."""
        self.operations.append((key, None, 0))


def _nothing(key: bytes) -> Row | None:
    return None


class ClientConnection(asyncio.Protocol):
    """One client's socket."""

    __slots__ = (
        "backlog",
        "blocked",
        "ended",
        "endpoint",
        "last_write",
        "out",
        "parser",
        "paused",
        "queue",
        "session",
        "state",
        "transport",
    )

    def __init__(self, endpoint: ZoneEndpoint) -> None:
        self.endpoint = endpoint
        self.parser = CommandParser()
        self.queue: deque[Slot | bytes] = deque()
        self.out: list[bytes] = []
        self.backlog: deque[tuple[int, list[bytes]]] = deque()
        self.blocked = False
        self.paused = False
        self.ended = False
        self.last_write: tuple[Primary, int] | None = None
        self.transport: asyncio.Transport
        self.state: Connection
        self.session: Session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self.endpoint.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.endpoint.disconnected(self)

    def data_received(self, data: bytes) -> None:
        if self.state.closing or self.ended:
            return
        commands = self.parser.feed(data)
        if self.blocked:
            now = boot_ms()
            self.backlog.extend([(now, command) for command in commands])
            if len(self.backlog) > BACKLOG_MAX and not self.paused:
                self.paused = True
                self.transport.pause_reading()
        else:
            self.endpoint.run(self, commands)
        if self.parser.error is not None:
            self.ended = True
            self.end_when_done()
        elif self.out:
            self.write()

    def eof_received(self) -> bool:
        """The client sends no more: answer what it has sent, then close."""
        self.ended = True
        self.end_when_done()
        return True

    def end_when_done(self) -> None:
        """Close behind the last reply, once nothing is left to execute."""
        if self.blocked or self.backlog:
            return
        if self.parser.error is not None and not self.state.closing:
            self.answer(self.parser.error)
        self.state.closing = True
        self.drain()
        if not self.queue:
            self.transport.close()

    def answer(self, reply: bytes) -> None:
        """Queue a reply behind those that still wait."""
        if self.queue:
            self.queue.append(reply)
        else:
            self.out.append(reply)

    def drain(self) -> None:
        """Move what is ready at the head of the queue to the socket."""
        queue, out = self.queue, self.out
        while queue:
            head = queue[0]
            if isinstance(head, bytes):
                out.append(head)
            elif head.done:
                out.append(head.reply)
            else:
                break
            queue.popleft()
        if out:
            self.write()

    def write(self) -> None:
        """One write for everything ready."""
        out = self.out
        if not self.transport.is_closing():
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
            if self.transport.get_write_buffer_size() > OUTPUT_BYTES_MAX:
                self.transport.abort()
        out.clear()
        if self.state.closing and not self.queue:
            self.transport.close()


class ZoneEndpoint:
    """All clients of one zone on this agent."""

    def __init__(
        self,
        replicas: Replicas,
        node: str,
        turn: Callable[[], None],
        nodes: Callable[[], dict[str, tuple[str, int]]],
        is_up: Callable[[str], bool],
        info: Callable[[], dict[str, dict[str, str | int]]],
        metrics: AgentMetrics,
        storage_full: Callable[[], bool],
    ) -> None:
        self.replicas = replicas
        self.node = node
        self._turn = turn
        self._nodes = nodes
        self._is_up = is_up
        self._info = info
        self._metrics = metrics
        self._storage_full = storage_full
        self._shift = slot_shift(replicas.zone.partitions)
        self._view = View()
        self._clients: dict[int, ClientConnection] = {}
        self._next_id = 1
        self._arrived_ms = 0
        self._parked: list[Slot] = []
        self._waits: list[Slot] = []
        self._touched: dict[ClientConnection, None] = {}
        self._cluster: ClusterView | None = None
        self._server: asyncio.Server | None = None
        self.scan_positions = ScanPositions()
        self.host = ""
        self.port = 0

    # --- listening -------------------------------------------------------------------------------

    async def listen(self, host: str, ports: Iterable[int]) -> int:
        """Listen on the first of `ports` that is free; OSError when none is."""
        loop = asyncio.get_running_loop()
        error: OSError | None = None
        for port in ports:
            try:
                self._server = await loop.create_server(
                    lambda: ClientConnection(self), host, port, backlog=1024
                )
            except OSError as problem:
                error = problem
                continue
            self.host, self.port = host, self._server.sockets[0].getsockname()[1]
            return self.port
        raise error or OSError("no port to try")

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        for client in list(self._clients.values()):
            client.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def connected(self, client: ClientConnection) -> None:
        """A client connected."""
        peer = client.transport.get_extra_info("peername") or ("?", 0)
        local = client.transport.get_extra_info("sockname") or ("?", 0)
        now = time.time_ns() // 1_000_000
        client.state = Connection(
            self._next_id, f"{peer[0]}:{peer[1]}", f"{local[0]}:{local[1]}", now
        )
        client.session = Session(client.state, self)
        self._clients[self._next_id] = client
        self._next_id += 1
        self._metrics.connections.inc()

    def disconnected(self, client: ClientConnection) -> None:
        """A client went away; what it asked for goes on, its replies have nowhere to go."""
        if self._clients.pop(client.state.id, None) is not None:
            self._metrics.connections.dec()
        client.backlog.clear()
        self._parked = [slot for slot in self._parked if slot.connection is not client]
        self._waits = [slot for slot in self._waits if slot.connection is not client]

    # --- commands --------------------------------------------------------------------------------

    def run(self, client: ClientConnection, commands: Iterable[list[bytes]]) -> None:
        """Execute commands of one connection in order, until one blocks it."""
        now = self._begin_run(client)
        self._arrived_ms = now
        rest = iter(commands)
        for args in rest:
            self._execute(client, args, now, None)
            if client.blocked:
                client.backlog.extend([(now, later) for later in rest])
                return
            if client.state.closing:
                return

    def _run_backlog(self, client: ClientConnection) -> None:
        """Execute what came while the connection was blocked, until a command blocks it again.

        A command's wait for a primary counts from when it came, else a pipeline of them would wait
        one bound after the other.
        """
        now = self._begin_run(client)
        backlog = client.backlog
        while backlog and not client.blocked and not client.state.closing:
            self._arrived_ms, args = backlog.popleft()
            self._execute(client, args, now, None)

    def _begin_run(self, client: ClientConnection) -> int:
        view = self._view
        view.now_ms = time.time_ns() // 1_000_000
        client.state.last_ms = view.now_ms
        view.resp3 = client.state.resp3
        return boot_ms()

    def _execute(
        self, client: ClientConnection, args: list[bytes], now: int, slot: Slot | None
    ) -> None:
        """Execute one command; `slot` is its place when it waited before."""
        command = DISPATCH.get(args[0])
        if (
            command is None
            or command.has_subcommands
            or not command.arguments_min <= len(args) <= command.arguments_max
        ):
            resolved = resolve(args)
            if isinstance(resolved, bytes):
                client.answer(resolved)
                return
            command = resolved
        if command.scope is not Scope.KEYED:
            self._execute_other(client, command, args, now, slot)
            return
        if command.single_key:
            key = args[1]
            number = key_slot(key) if b"{" in key else crc_hqx(key, 0) & 16383
        else:
            number = command_slot(command, args)
            if number < 0:
                self._fulfil(client, slot, replies.CROSSSLOT)
                return
        partition = number >> self._shift
        role = self.replicas.primaries[partition]
        view = self._view
        if role is None or role.serving_until <= now or role.frozen:
            copy = self._readable(client, command, partition)
            if copy is None:
                self._not_serving(client, command, args, number, partition, now, slot)
                return
            view.pending = {}
            view.waits = False
            view.get_row = copy.get
            self._fulfil(client, slot, command.handler(view, args))
            view.operations.clear()
            return
        if command.grows and self._storage_full():
            persistent = self.replicas.zone.persistent
            self._fulfil(client, slot, replies.MISCONF if persistent else replies.OOM)
            return
        view.pending = role.pending
        view.waits = role.flushed > role.acked
        view.get_row = role.copy.get
        reply = command.handler(view, args)
        if view.operations:
            operations = tuple(view.operations)
            view.operations.clear()
            client.last_write = (role, role.write(operations))
            self.replicas.commands_wrote(role)
            keys = tuple([operation[0] for operation in operations])
        elif view.waits:
            keys = ()
        else:
            self._fulfil(client, slot, reply)
            return
        if slot is None:
            slot = Slot(client, command, args, reply, keys, now)
            client.queue.append(slot)
        else:
            slot.keys, slot.reply = keys, reply
            self._unblock(slot)
        role.wait(slot)
        self._turn()

    def _fulfil(self, client: ClientConnection, slot: Slot | None, reply: bytes) -> None:
        if slot is None:
            client.answer(reply)
            return
        slot.reply = reply
        slot.done = True
        self._touched[client] = None
        self._unblock(slot)

    def _unblock(self, slot: Slot) -> None:
        client = slot.connection
        if slot.deadline_ms:
            slot.deadline_ms = 0
            client.blocked = False
            self._touched[client] = None

    def _readable(self, client: ClientConnection, command: Command, partition: int) -> Copy | None:
        """The copy a READONLY connection may read here: one that has adopted its term."""
        if not client.state.readonly or command.is_write:
            return None
        copy = self.replicas.copies.get(partition)
        return copy if copy is not None and copy.adopted else None

    def _not_serving(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        number: int,
        partition: int,
        now: int,
        slot: Slot | None,
    ) -> None:
        """Redirect to the primary when it is another node that is there; else park."""
        row = self.replicas.table[partition]
        primary = row.primary.node if row is not None and row.primary is not None else self.node
        if primary != self.node and self._is_up(primary) and primary in self._nodes():
            self._metrics.moved.inc()
            self._fulfil(client, slot, self.cluster().moved(number))
            return
        self._park(client, command, args, now, slot)

    def _park(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now: int,
        slot: Slot | None,
    ) -> None:
        """Try the command again until a primary serves, or its bound is over."""
        deadline = self._arrived_ms + self.replicas.settings.park_bound_ms
        if slot is None:
            if deadline <= now:
                self._metrics.clusterdown.inc()
                client.answer(replies.CLUSTERDOWN)
                return
            slot = Slot(client, command, args, b"", (), now)
            client.queue.append(slot)
        if not slot.deadline_ms:
            slot.deadline_ms = deadline
            client.blocked = True
            self._metrics.parked.inc()
        self._parked.append(slot)

    def _execute_other(
        self,
        client: ClientConnection,
        command: Command,
        args: list[bytes],
        now: int,
        slot: Slot | None,
    ) -> None:
        answer = command.handler(client.session, args)
        if isinstance(answer, bytes):
            self._view.resp3 = client.state.resp3
            client.answer(answer)
            return
        roles = list(self.replicas.roles.values())
        if answer is None and not all(role.serves(now) for role in roles):
            self._park(client, command, args, now, slot)  # all of this agent's keys, or an error
            return
        if slot is None:
            slot = Slot(client, command, args, replies.OK, (), now)
            client.queue.append(slot)
        else:
            slot.reply = replies.OK
            self._unblock(slot)
        if isinstance(answer, WaitRequest):
            slot.wait = answer
            slot.deadline_ms = now + answer.timeout_ms if answer.timeout_ms else 1 << 62
            client.blocked = True
            self._waits.append(slot)
            self._turn()
            return
        slot.left = len(roles)
        slot.done = not roles
        for role in roles:
            client.last_write = (role, role.write(((None, None, 0),)))
            self.replicas.commands_wrote(role)
            role.wait(PartOfFlush(slot, now))
        self._touched[client] = None
        self._turn()

    # --- the turn --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take what the replicas finished, retry what is parked, write what is ready."""
        finished = self.replicas.take_finished()
        touched = self._touched
        for waiter in finished.answered:
            if type(waiter) is Slot:
                waiter.done = True
                touched[waiter.connection] = None
            elif isinstance(waiter, PartOfFlush):
                self._flush_part(waiter, b"")
        for waiter in finished.unknown:
            self._metrics.unknown.inc()
            self._end(waiter, replies.UNKNOWN_OUTCOME)
        full = replies.MISCONF if self.replicas.zone.persistent else replies.OOM
        for waiter in finished.refused:
            self._end(waiter, full)
        now = boot_ms()
        self._arrived_ms = now
        if finished.again:
            self._view.now_ms = time.time_ns() // 1_000_000
            for waiter in finished.again:
                if isinstance(waiter, Slot):
                    self._view.resp3 = waiter.connection.state.resp3
                    self._execute(waiter.connection, waiter.args, now, waiter)
        if self._parked:
            self._retry_parked(now)
        if self._waits:
            self._check_waits(now)
        while self._touched:
            batch, self._touched = self._touched, {}
            for client in batch:
                if not client.blocked and client.backlog:
                    self._run_backlog(client)
                if client.paused and not client.blocked:
                    client.paused = False
                    client.transport.resume_reading()
                client.drain()
                if client.ended and not client.state.closing:
                    client.end_when_done()

    def _end(self, waiter: Waiter, reply: bytes) -> None:
        if isinstance(waiter, Slot):
            waiter.reply = reply
            waiter.done = True
            self._touched[waiter.connection] = None
        elif isinstance(waiter, PartOfFlush):
            self._flush_part(waiter, reply)

    def _flush_part(self, part: PartOfFlush, problem: bytes) -> None:
        slot = part.slot
        slot.left -= 1
        if problem:
            slot.reply = problem
        if slot.left == 0:
            slot.done = True
            self._touched[slot.connection] = None

    def _retry_parked(self, now: int) -> None:
        parked, self._parked = self._parked, []
        self._view.now_ms = time.time_ns() // 1_000_000
        bound = self.replicas.settings.park_bound_ms
        for slot in parked:
            since = slot.deadline_ms - bound
            if slot.deadline_ms and slot.deadline_ms <= now:
                self._metrics.clusterdown.inc()
                self._fulfil(slot.connection, slot, replies.CLUSTERDOWN)
            else:
                self._view.resp3 = slot.connection.state.resp3
                self._execute(slot.connection, slot.args, now, slot)
            if not slot.deadline_ms:
                self._metrics.parked_seconds.observe((now - since) / 1000)

    def _check_waits(self, now: int) -> None:
        waiting: list[Slot] = []
        for slot in self._waits:
            assert slot.wait is not None
            count = self._copies_of_last_write(slot.connection)
            if count >= slot.wait.copies or slot.deadline_ms <= now:
                self._fulfil(slot.connection, slot, replies.integer(count))
            else:
                waiting.append(slot)
        self._waits = waiting

    def _copies_of_last_write(self, client: ClientConnection) -> int:
        """How many other copies hold the connection's last write; without one, every backup."""
        if client.last_write is None:
            row = self.replicas.table[0]
            return len(row.owners) - 1 if row is not None else 0
        role, counter = client.last_write
        return sum(1 for peer in role.peers.values() if peer.adopted and peer.lwm >= counter)

    @property
    def has_waiting(self) -> bool:
        """Whether time alone may finish something here."""
        return bool(self._parked or self._waits)

    def table_changed(self) -> None:
        """Rows, members or ports changed: the cluster view is built anew when asked for."""
        self._cluster = None

    # --- what commands ask (resp.session.Agent) --------------------------------------------------

    def now_us(self) -> int:
        """Wall microseconds."""
        return time.time_ns() // 1000

    def cluster(self) -> ClusterView:
        """Who serves which slots, as far as this agent knows."""
        view = self._cluster
        if view is None:
            view = self._cluster = self._build_cluster()
        return view

    def _build_cluster(self) -> ClusterView:
        nodes = self._nodes()
        names = sorted(nodes)
        if self.node not in nodes:
            nodes = {**nodes, self.node: (self.host, self.port)}
            names = sorted(nodes)
        index = {name: at for at, name in enumerate(names)}
        mine = index[self.node]
        primaries: list[int] = []
        epoch = 0
        for row in self.replicas.table:
            if row is None:
                primaries.append(mine)
                continue
            epoch += row.version
            owners = [row.primary.node] if row.primary is not None else []
            owners += [*row.owners, *row.voter_nodes]
            primaries.append(next((index[node] for node in owners if node in index), mine))
        members = tuple(ClusterNode(name, *nodes[name]) for name in names)
        served = sum(1 for row in self.replicas.table if row is not None and row.owners)
        return ClusterView(members[mine], members, tuple(primaries), epoch, served << self._shift)

    def connections(self) -> list[Connection]:
        """All clients of this zone here."""
        return [client.state for client in self._clients.values()]

    def _serving(self) -> list[Primary]:
        return [r for r in self.replicas.roles.values() if r.stage is Stage.SERVING]

    def key_count(self) -> int:
        """Live rows of this agent's primaries."""
        return sum(role.copy.space.row_count() for role in self._serving())

    def slot_key_count(self, slot: int) -> int:
        """Live keys in one slot, by looking at its partition's rows."""
        partition = slot >> self._shift
        role = self.replicas.primaries[partition]
        if role is None:
            return 0
        count, after = 0, None
        while chunk := role.copy.space.scan(after, 10_000, 1 << 24):
            count += sum(1 for key, row in chunk if row.value is not None and key_slot(key) == slot)
            after = chunk[-1][0]
        return count

    def info(self) -> dict[str, dict[str, str | int]]:
        """Sections of INFO."""
        return self._info()

    def primaries(self) -> Sequence[int]:
        """Partitions this agent serves."""
        return sorted(role.copy.partition for role in self._serving())

    def scan(
        self, partition: int, after: bytes | None, rows_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Live keys in key order, and the last key looked at."""
        role = self.replicas.primaries[partition]
        if role is None:
            return [], None
        now = time.time_ns() // 1_000_000
        chunk = role.copy.space.scan(after, rows_max, 1 << 22)
        keys = [
            key
            for key, row in chunk
            if row.value is not None and not (row.expires_at and row.expires_at < now)
        ]
        return keys, chunk[-1][0] if chunk else None
