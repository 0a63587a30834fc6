"""Client connections: bytes in, replies out in the order of each connection's commands.

A command that has to wait leaves a slot in the connection's queue.  Later replies wait behind it;
the ready ones leave in one write per turn.  The endpoint executes the commands.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from itertools import islice
from typing import Protocol, cast

from quorate.protocol.copies.waiters import Waiter
from quorate_agent.clients.memory import WATCHED_BYTES, ClientMemory
from quorate_agent.machine.clock import Clock
from quorate_agent.resp.command import WORD_BYTES, Command
from quorate_agent.resp.reading.parser import FREE_BYTES, CommandParser
from quorate_agent.resp.session import AgentServices, Connection, Session, WaitRequest

BACKLOG_MAX = 1024
"""Commands that a blocked connection may pile up before its socket is no longer read."""

QUEUE_MAX = 1024
"""Replies that may wait behind an earlier one before the socket is no longer read.

Writes whose acknowledgement is late, as on a disk that stalls, do not block later commands, so
replies pile up."""

QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of these replies and writes before later commands wait; one turn may exceed it."""

WAITED_MS_MAX = 1000
"""A command that had waited longer than this when its client closed its side is not executed.

Such a client has most likely timed out; it did not close after its last command."""

LONG_BYTES = 2048
"""A read longer than this may stay uncut until there is time to cut it into commands."""

RECEIVE_BYTES = 64 * 1024
"""Kernel receive buffer of a connection, and so about the most that one read brings: two thousand
small commands."""

SEEN_BYTES = 150
"""Bytes that each watched key takes beside its text."""

_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""The kernel ends the connection of a client whose machine has been silent for two minutes.

It does not end that of a client that is there and does not read, which may go on."""

UNREAD_BYTES_MAX = 1024 * 1024
"""Reply bytes that neither the client nor the kernel has taken, above which nothing more is
executed for the connection until only a quarter is left.  A single reply may be longer."""

OUTPUT_BYTES_MAX = 256 * 1024 * 1024
"""A client that does not read its pushes is disconnected above this."""

BACKLOG_BYTES_MAX = 1024 * 1024
"""Bytes read from a blocked connection before its socket is no longer read."""


class ClientEndpoint(Protocol):
    """The part of a zone's endpoint that a connection uses: it executes the commands."""

    memory: ClientMemory
    clock: Clock

    @property
    def park_bound_ms(self) -> int:
        """The longest time for which commands wait for a primary."""

    def connected(self, client: ClientConnection) -> None:
        """Give a new client its state and session."""

    def disconnected(self, client: ClientConnection) -> None:
        """Forget a client whose connection has ended."""

    def run(self, client: ClientConnection, commands: list[list[bytes]]) -> None:
        """Execute commands in order until one blocks the connection; consumes the list."""

    def cut(self, client: ClientConnection) -> None:
        """Call `take_in` for what was read, now or in a later turn."""

    def half_closed(self, client: ClientConnection) -> None:
        """Note that a client sends no more; it may be gone and repeat its commands at another
        agent."""

    def large_came(self, client: ClientConnection, commands: list[list[bytes]]) -> bool:
        """Return whether these commands, one of them large, are to wait in the connection's
        backlog."""

    def go_on(self, client: ClientConnection) -> None:
        """Execute the backlog of a connection that is no longer blocked, in this turn."""


class Slot(Waiter):
    """The place of a reply in its connection's queue.

    Joined writes of one partition share a slot: `count` is how many they are, `size` the bytes of
    all."""

    __slots__ = (
        "args",
        "arrived",
        "command",
        "connection",
        "count",
        "deadline_ms",
        "done",
        "held",
        "left",
        "reply",
        "size",
        "wait",
    )

    held: int  # bytes; set when the connection counts them

    def __init__(
        self,
        connection: ClientConnection,
        command: Command,
        args: list[bytes],
        reply: bytes,
        keys: tuple[bytes | None, ...],
        since_ms: int,
        count: int = 1,
        size: int = 0,
    ) -> None:
        # Sets Waiter's fields itself instead of calling super(): one is made for every write.
        self.keys = keys
        self.counter = 0
        self.since_ms = since_ms
        self.connection = connection
        self.arrived = connection.arrived
        self.command = command
        self.args = args
        self.reply = reply
        self.count = count
        self.size = size
        self.done = False
        self.deadline_ms = 0
        self.left = 0
        self.wait: WaitRequest | None = None


class ClientConnection(asyncio.Protocol):
    """One client's socket."""

    __slots__ = (
        "answered_ms",
        "arrived",
        "backlog",
        "backlog_bytes",
        "blocked",
        "charged",
        "counted",
        "ended",
        "endpoint",
        "external",
        "half_closed_ms",
        "held",
        "out",
        "parser",
        "paused",
        "queue",
        "refusal",
        "session",
        "state",
        "told_behind",
        "transport",
        "unread",
        "unread_since_ms",
        "was_at_rest",
        "written",
        "written_elsewhere",
    )

    def __init__(self, endpoint: ClientEndpoint, external: bool = False) -> None:
        self.endpoint = endpoint
        self.external = external  # it came by the external listener
        self.parser = CommandParser(self._admit)
        self.queue: deque[Slot | bytes] = deque()
        self.out: list[bytes] = []
        self.arrived = 0.0  # when the commands that are executed arrived (Clock.passed_s)
        self.backlog: deque[tuple[int, list[bytes]]] = deque()
        self.unread = b""  # bytes not yet cut into commands; they came after the backlog
        self.backlog_bytes = 0  # bytes read since the backlog was empty
        self.blocked = 0  # how many of its slots and unread replies block later commands
        self.charged = 0  # bytes counted in the agent's budget for clients (clients/memory.py)
        self.unread_since_ms = 0  # since when its client has been too slow to read; 0: it is not
        self.counted = self.held = 0  # queue places counted so far, and the bytes they hold
        self.paused = False
        self.ended = False
        self.answered_ms = 0  # when it was last sent replies while keys could not be watched
        self.was_at_rest = False  # what is read came when all was answered, after such a refusal
        self.half_closed_ms = 0  # when the client closed its side, or the connection ended
        self.refusal = b""  # the reply to every further command; empty: none is refused
        self.told_behind = 0  # bytes of pushes that wait in the queue, or have waited (pushes.py)
        self.written = 0  # a bit for each partition that it wrote into, for WAIT
        self.written_elsewhere = 0  # those with a primary elsewhere when WAIT was answered
        self.transport: asyncio.Transport
        self.state: Connection
        self.session: Session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket's options and buffers, and register with the endpoint."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            if raw.family != socket.AF_UNIX:
                for level, option, value in _KEEPALIVE:
                    raw.setsockopt(level, option, value)
        self.transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX)
        self.endpoint.connected(self)

    def open(self, number: int, agent: AgentServices) -> None:
        """Make this client `number` of the zone."""
        peer = self.transport.get_extra_info("peername") or ("?", 0)
        local = self.transport.get_extra_info("sockname") or ("?", 0)
        now = self.endpoint.clock.wall_ms()
        self.state = Connection(number, f"{peer[0]}:{peer[1]}", f"{local[0]}:{local[1]}", now)
        self.state.external = self.external
        self.session = Session(self.state, agent)

    def pause_writing(self) -> None:
        """Execute nothing more until the client has read its replies."""
        if not self.unread_since_ms:
            self.unread_since_ms = self.endpoint.clock.boot_ms()
            self.blocked += 1
            self.endpoint.memory.watch(self)

    def resume_writing(self) -> None:
        """Go on after the client has read.  The time it took does not count as waiting of its
        commands."""
        if self.unread_since_ms:
            waited_ms = self.endpoint.clock.boot_ms() - self.unread_since_ms
            self.unread_since_ms = 0
            self.blocked -= 1
            self.backlog = deque([(at + waited_ms, command) for at, command in self.backlog])
            self.endpoint.go_on(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the endpoint that the connection has ended, for whatever reason."""
        self.endpoint.disconnected(self)

    def data_received(self, data: bytes) -> None:
        """Execute the complete commands, or keep them while the connection is blocked."""
        if self.state.closing or self.ended:
            return
        if self.state.unwatched and self._is_at_rest():
            self.was_at_rest = True
        if len(data) > LONG_BYTES or self.unread:
            self.unread += data
            self.endpoint.cut(self)
        else:
            self._take_in(data)

    def _is_at_rest(self) -> bool:
        """Return whether all that was read is answered, and no transaction has begun."""
        waits = self.queue or self.backlog or self.unread or self.blocked
        return not (waits or self.parser.pending_bytes or self.state.transaction is not None)

    def _look_at_unwatched(self, first: list[bytes]) -> None:
        """Forget which keys could not be watched, unless `first` may have been sent in one pipeline
        with the WATCH that was refused, and arrived later."""
        self.was_at_rest = False
        passed_ms = self.endpoint.clock.boot_ms() - self.answered_ms
        is_other = first[0].lower() not in (b"multi", b"watch")
        if is_other or passed_ms >= self.endpoint.park_bound_ms:
            self.state.forget_unwatched()

    def take_in(self) -> None:
        """Cut and execute what was read and had to wait."""
        data, self.unread = self.unread, b""
        if not self.state.closing:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        commands = self.parser.feed(data)
        if self.was_at_rest and commands:
            self._look_at_unwatched(commands[0])
        if self.parser.took_large:
            self.parser.took_large = self.state.transaction is not None  # EXEC is as large
            if not self.refusal and self.endpoint.large_came(self, commands):
                commands = []
        if self.refusal:
            for _ in commands:
                self.answer(self.refusal)
        elif self.blocked or self.backlog:  # earlier commands go first, at the turn's end
            self.execute_later(commands)
        elif not self.has_room():
            self.execute_later(commands)
            self.pause()
        else:
            self.endpoint.run(self, commands)
        if self.parser.error is not None:
            self.ended = True
            self.end_when_done()
        elif self.out:
            self.write()

    def execute_later(self, commands: list[list[bytes]]) -> None:
        """Put commands into the backlog, behind the commands they wait for."""
        now = self.endpoint.clock.boot_ms()
        if not self.backlog:
            self.backlog_bytes = 0
        self.backlog.extend([(now, command) for command in commands])
        self.backlog_bytes += _size(commands)
        if len(self.backlog) > BACKLOG_MAX or self.backlog_bytes > BACKLOG_BYTES_MAX:
            self.pause()
        if self.backlog_bytes > WATCHED_BYTES and not self.charged:
            self.endpoint.memory.watch(self)

    def has_room(self) -> bool:
        """Return whether the queue has room for another reply."""
        count = len(self.queue)
        if not count:
            return True
        self._count_queue(count)
        if self.held > WATCHED_BYTES and not self.charged:
            self.endpoint.memory.watch(self)
        return count <= QUEUE_MAX and self.held <= QUEUE_BYTES_MAX

    def _count_queue(self, count: int) -> None:
        for place in islice(reversed(self.queue), count - self.counted):
            if isinstance(place, bytes):
                self.held += len(place)
            else:
                place.held = len(place.reply) + (place.size or _size(_words_of(place)))
                self.held += place.held
        self.counted = count

    def held_bytes(self) -> int:
        """Return the bytes that the agent holds for this connection: unanswered commands and
        replies."""
        self._count_queue(len(self.queue))
        transaction = self.state.transaction
        return (
            self.parser.reserved_bytes
            + len(self.unread)
            + _size([command for _, command in self.backlog])
            + (transaction.bytes if transaction is not None else 0)
            + self.watched_key_bytes()
            + self.held
            + sum(map(len, self.out))
            + self.transport.get_write_buffer_size()
        )

    def watched_key_bytes(self) -> int:
        """Return the bytes that the keys take which it watches, or is to watch."""
        keys = [*self.state.watched, *self.state.unwatched]
        return sum(map(len, keys)) + SEEN_BYTES * len(keys)

    def admitted_bytes(self) -> int:
        """Return the bytes it holds of large commands that the memory budget has admitted."""
        transaction = self.state.transaction
        queued = transaction.commands if transaction is not None else []
        commands = [command for _, command in [*self.backlog, *queued]]
        for slot in self.queue:
            if isinstance(slot, Slot) and not slot.size:
                commands += _words_of(slot)
        sizes = [_size([command]) for command in commands]
        return self.parser.reserved_bytes + sum(size for size in sizes if size > FREE_BYTES)

    def _admit(self, more: int) -> bytes:
        return self.endpoint.memory.admit(self, more)

    def take_backlog(self, count_max: int) -> tuple[int, list[list[bytes]]]:
        """Take from the backlog the commands that arrived together with its first, at most
        `count_max`.

        Returns when they arrived (boot ms), and the commands in reverse order."""
        backlog = self.backlog
        arrived = backlog[0][0]
        taken: list[list[bytes]] = []
        while backlog and backlog[0][0] == arrived and len(taken) < count_max:
            taken.append(backlog.popleft()[1])
        taken.reverse()
        return arrived, taken

    def waits_no_more(self, now_ms: int) -> bool:
        """Return whether the client is gone or half-closed, even while its socket is not read."""
        raw = self.transport.get_extra_info("socket") if self.paused else None
        if raw is not None and raw.fileno() >= 0 and not self.half_closed_ms:
            ends = select.poll()
            ends.register(raw.fileno(), select.POLLRDHUP)
            if ends.poll(0):
                self.half_closed_ms = now_ms
        return self.half_closed_ms > 0

    def is_late(self, now_ms: int, bound_ms: int) -> bool:
        """Return whether the client has probably given up on the first command of the backlog.

        It has closed its side, and the command arrived more than `bound_ms` ago or had waited long
        when the client closed."""
        if not self.waits_no_more(now_ms):
            return False
        arrived = self.backlog[0][0]
        return now_ms - arrived > bound_ms or self.half_closed_ms - arrived > WAITED_MS_MAX

    def refuse(self, reply: bytes) -> None:
        """Answer `reply` to every command that has not begun and to all that still come."""
        self.refusal = reply
        if not self.state.closing:
            for _ in self.backlog:
                self.answer(reply)
        self.backlog.clear()
        if self.unread:
            self.take_in()

    def pause(self) -> None:
        """Stop reading the socket until the backlog is empty."""
        if not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Answer what has begun or can be executed at once, then close: the client has closed its
        side."""
        self.ended = True
        self.half_closed_ms = self.half_closed_ms or self.endpoint.clock.boot_ms()
        if self.blocked and self.unread:
            self.take_in()  # so that the time it has waited is known
        self.endpoint.half_closed(self)
        self.end_when_done()
        return True

    def end_when_done(self) -> None:
        """Close the connection behind its last reply, once nothing is left to execute."""
        if self.blocked or self.backlog or self.unread:
            return
        if self.parser.error is not None and not self.state.closing:
            self.answer(self.parser.error)
        self.state.closing = True
        self.drain()
        if not self.queue:
            self.transport.close()

    def say_goodbye(self) -> None:
        """Close our side and drop the replies that wait; what the client still sends is read and
        dropped."""
        for place in self.queue:
            if isinstance(place, Slot):
                place.deadline_ms = 0  # whatever it waits for no longer blocks the connection
        self.queue.clear()
        self.state.closing = True
        self.endpoint.disconnected(self)  # reverses what the client still counts as blocked
        self.blocked = self.counted = self.held = self.unread_since_ms = 0
        if not self.transport.is_closing():
            self.transport.write_eof()
            if self.paused:
                self.paused = False
                self.transport.resume_reading()

    def answer(self, reply: bytes) -> None:
        """Queue a reply behind those that still wait."""
        if self.queue:
            self.queue.append(reply)
        else:
            self.out.append(reply)

    def drain(self) -> None:
        """Send the replies that are ready at the head of the queue."""
        self.take_ready()
        if self.out:
            self.write()

    def take_ready(self) -> None:
        """Move the replies that are ready at the head of the queue to `out`."""
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
            if self.counted:
                self.counted -= 1
                self.held -= len(head) if isinstance(head, bytes) else head.held

    def write(self) -> None:
        """Send everything in `out` in one write."""
        out = self.out
        if self.state.unwatched:
            self.answered_ms = self.endpoint.clock.boot_ms()
        if not self.transport.is_closing():
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        if self.state.closing and not self.queue:
            self.transport.close()


def _words_of(slot: Slot) -> list[list[bytes]]:
    """Return the words of its command; of an EXEC also those of the commands that it executes."""
    return [slot.args, *slot.command.queued]


def _size(commands: list[list[bytes]]) -> int:
    """Return the bytes of the commands' words, and about what these take beside their text."""
    return sum([sum(map(len, command)) + WORD_BYTES * len(command) for command in commands])
