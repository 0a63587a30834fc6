"""Clients' connections: bytes in, replies out in the order of each one's commands.

A command that has to wait leaves a slot in the connection's queue; the replies behind it wait with
it, and what is ready leaves in one write per turn.  What a command means the endpoint knows.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import deque
from itertools import islice
from typing import Protocol, cast

from quorate.protocol.copies.primary import Primary, Waiter
from quorate_agent.clients.memory import WATCHED_BYTES, ClientMemory
from quorate_agent.resp.command import Command
from quorate_agent.resp.reading.parser import FREE_BYTES, CommandParser
from quorate_agent.resp.session import Agent, Connection, Session, WaitRequest

BACKLOG_MAX = 1024
"""Commands a blocked connection may pile up before its socket is no longer read."""

QUEUE_MAX = 1024
"""Replies that may wait for an earlier one of their connection before its socket is no longer read:
a write whose acknowledgement is late, on a disk that stands still, blocks no later command."""

QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""What these replies and writes may take before later commands wait; a turn may add to it."""

WAITED_MS_MAX = 1000
"""What has waited for longer when its client closes its side is not executed: that is hardly one
that closes it behind its last command, but one whose time limit is over."""

LONG_BYTES = 2048
"""A read that brought more may wait as it is until there is time to cut it into commands."""

RECEIVE_BYTES = 64 * 1024
"""What the kernel takes in for a connection that is not read, and so about the most that one read
brings: two thousand small commands."""

UNREAD_BYTES_MAX = 1024 * 1024
"""Of replies that the client has not read and the kernel has not taken: above, nothing more is
executed for the connection until a quarter is left.  One reply may be longer than that."""

OUTPUT_BYTES_MAX = 256 * 1024 * 1024
"""A client that is told what it did not ask for (pushes), and does not read, is cut off above."""

BACKLOG_BYTES_MAX = 1024 * 1024
"""What may be read of a blocked connection before its socket is no longer read."""

_boottime = time.CLOCK_BOOTTIME


def boot_ms() -> int:
    """Milliseconds on the clock that runs through suspension."""
    return time.clock_gettime_ns(_boottime) // 1_000_000


class Endpoint(Protocol):
    """Where the commands of a connection go."""

    memory: ClientMemory

    def connected(self, client: ClientConnection) -> None:
        """A client connected: gives it its state and session."""

    def disconnected(self, client: ClientConnection) -> None:
        """A client went away."""

    def run(self, client: ClientConnection, commands: list[list[bytes]]) -> None:
        """Execute commands in order, until one blocks the connection; uses the list up."""

    def cut(self, client: ClientConnection) -> None:
        """Have `take_in` called for what was read, now or later."""

    def half_closed(self, client: ClientConnection) -> None:
        """A client sends no more: it may be gone, and ask another agent what it asked here."""

    def large_came(self, client: ClientConnection, commands: list[list[bytes]]) -> bool:
        """A large command is among these: whether they are to wait in the connection's backlog."""

    def go_on(self, client: ClientConnection) -> None:
        """What blocked the connection is over: execute what waits, in this turn."""


class Slot(Waiter):
    """The place of a reply in its connection's queue; of several for writes that were joined, with
    the bytes of all of them in `size`."""

    __slots__ = (
        "args",
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

    held: int  # bytes, once the connection has counted them

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
        # Waiter's fields are set here: this is made for every write.
        self.keys = keys
        self.counter = 0
        self.since_ms = since_ms
        self.connection = connection
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
        "last_write",
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
    )

    def __init__(self, endpoint: Endpoint, external: bool = False) -> None:
        self.endpoint = endpoint
        self.external = external  # it came by the external listener
        self.parser = CommandParser(self._admit)
        self.queue: deque[Slot | bytes] = deque()
        self.out: list[bytes] = []
        self.backlog: deque[tuple[int, list[bytes]]] = deque()
        self.unread = b""  # read and not yet cut into commands; later than the backlog
        self.backlog_bytes = 0  # read since it was empty
        self.blocked = 0  # how many of its slots later commands wait for, and unread replies
        self.charged = 0  # bytes that it holds of what all clients may (clients/memory.py)
        self.unread_since_ms = 0  # when it began to wait for its client to read; 0: it does not
        self.counted = self.held = 0  # the first places of the queue, and the bytes they keep
        self.paused = False
        self.ended = False
        self.half_closed_ms = 0  # when the client closed its side, or the connection ended
        self.refusal = b""  # what is said to all that still comes
        self.told_behind = 0  # bytes of pushes that wait in the queue, or have waited (pushes.py)
        # Role and counter; of one that was forwarded, no role and the partition.
        self.last_write: tuple[Primary | None, int] | None = None
        self.transport: asyncio.Transport
        self.state: Connection
        self.session: Session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX)
        self.endpoint.connected(self)

    def open(self, number: int, agent: Agent) -> None:
        """From now on this is client `number` of the zone."""
        peer = self.transport.get_extra_info("peername") or ("?", 0)
        local = self.transport.get_extra_info("sockname") or ("?", 0)
        now = time.time_ns() // 1_000_000
        self.state = Connection(number, f"{peer[0]}:{peer[1]}", f"{local[0]}:{local[1]}", now)
        self.state.external = self.external
        self.session = Session(self.state, agent)

    def pause_writing(self) -> None:
        """The client does not read its replies as fast as they come: execute nothing until it
        has."""
        if not self.unread_since_ms:
            self.unread_since_ms = boot_ms()
            self.blocked += 1
            self.endpoint.memory.watch(self)

    def resume_writing(self) -> None:
        """The client has read: go on.  What it sent meanwhile has not waited for anything here."""
        if self.unread_since_ms:
            waited_ms = boot_ms() - self.unread_since_ms
            self.unread_since_ms = 0
            self.blocked -= 1
            self.backlog = deque([(at + waited_ms, command) for at, command in self.backlog])
            self.endpoint.go_on(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, however it went."""
        self.endpoint.disconnected(self)

    def data_received(self, data: bytes) -> None:
        """Execute the commands that are whole now, or keep them while the connection is blocked."""
        if self.state.closing or self.ended:
            return
        if len(data) > LONG_BYTES or self.unread:
            self.unread += data
            self.endpoint.cut(self)
        else:
            self._take_in(data)

    def take_in(self) -> None:
        """Go on with what was read and had to wait."""
        data, self.unread = self.unread, b""
        if not self.state.closing:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        commands = self.parser.feed(data)
        if self.parser.took_large:
            self.parser.took_large = self.state.transaction is not None  # EXEC is as large
            if not self.refusal and self.endpoint.large_came(self, commands):
                commands = []
        if self.refusal:
            for _ in commands:
                self.answer(self.refusal)
        elif self.blocked or self.backlog:  # what came before is executed before, at the turn's end
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
        """Keep commands until what is before them lets them be executed."""
        now = boot_ms()
        if not self.backlog:
            self.backlog_bytes = 0
        self.backlog.extend([(now, command) for command in commands])
        self.backlog_bytes += _size(commands)
        if len(self.backlog) > BACKLOG_MAX or self.backlog_bytes > BACKLOG_BYTES_MAX:
            self.pause()
        if self.backlog_bytes > WATCHED_BYTES and not self.charged:
            self.endpoint.memory.watch(self)

    def has_room(self) -> bool:
        """Whether what waits in the queue leaves room for another reply."""
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
                place.held = len(place.reply) + (place.size or sum(map(len, place.args)))
                self.held += place.held
        self.counted = count

    def held_bytes(self) -> int:
        """What the connection makes the agent hold: commands that are not answered, and replies."""
        self._count_queue(len(self.queue))
        transaction = self.state.transaction
        return (
            self.parser.reserved_bytes
            + len(self.unread)
            + _size([command for _, command in self.backlog])
            + (transaction.bytes if transaction is not None else 0)
            + self.held
            + sum(map(len, self.out))
            + self.transport.get_write_buffer_size()
        )

    def admitted_bytes(self) -> int:
        """What it holds of commands that the agent was asked for: they were admitted."""
        transaction = self.state.transaction
        queued = transaction.commands if transaction is not None else []
        commands = [command for _, command in [*self.backlog, *queued]]
        commands += [slot.args for slot in self.queue if isinstance(slot, Slot) and not slot.size]
        sizes = [_size([command]) for command in commands]
        return self.parser.reserved_bytes + sum(size for size in sizes if size > FREE_BYTES)

    def _admit(self, more: int) -> bytes:
        return self.endpoint.memory.admit(self, more)

    def take_backlog(self, count_max: int) -> tuple[int, list[list[bytes]]]:
        """When the first commands of the backlog came, and those that came then, the first last."""
        backlog = self.backlog
        arrived = backlog[0][0]
        taken: list[list[bytes]] = []
        while backlog and backlog[0][0] == arrived and len(taken) < count_max:
            taken.append(backlog.popleft()[1])
        taken.reverse()
        return arrived, taken

    def waits_no_more(self, now_ms: int) -> bool:
        """Whether the client is gone or half-closed, also when its socket is not read just now."""
        raw = self.transport.get_extra_info("socket") if self.paused else None
        if raw is not None and raw.fileno() >= 0 and not self.half_closed_ms:
            ends = select.poll()
            ends.register(raw.fileno(), select.POLLRDHUP)
            if ends.poll(0):
                self.half_closed_ms = now_ms
        return self.half_closed_ms > 0

    def is_late(self, now_ms: int, bound_ms: int) -> bool:
        """Whether nobody may wait for the first of the backlog any more: the client closed its side
        when it had waited for long, or has, and it came `bound_ms` ago."""
        if not self.waits_no_more(now_ms):
            return False
        arrived = self.backlog[0][0]
        return now_ms - arrived > bound_ms or self.half_closed_ms - arrived > WAITED_MS_MAX

    def refuse(self, reply: bytes) -> None:
        """Say this of every command that came and has not begun, and of what still comes."""
        self.refusal = reply
        if not self.state.closing:
            for _ in self.backlog:
                self.answer(reply)
        self.backlog.clear()
        if self.unread:
            self.take_in()

    def pause(self) -> None:
        """Read no more of the socket until the backlog is worked off."""
        if not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The client closed its side: answer what has begun or can be at once, then close."""
        self.ended = True
        self.half_closed_ms = self.half_closed_ms or boot_ms()
        if self.blocked and self.unread:
            self.take_in()  # so that it is known how long it waits
        self.endpoint.half_closed(self)
        self.end_when_done()
        return True

    def end_when_done(self) -> None:
        """Close behind the last reply, once nothing is left to execute."""
        if self.blocked or self.backlog or self.unread:
            return
        if self.parser.error is not None and not self.state.closing:
            self.answer(self.parser.error)
        self.state.closing = True
        self.drain()
        if not self.queue:
            self.transport.close()

    def say_goodbye(self) -> None:
        """Send no more; what the client still says is read and dropped."""
        for place in self.queue:
            if isinstance(place, Slot):
                place.deadline_ms = 0  # whatever it waits for, nothing waits for it any more
        self.queue.clear()
        self.state.closing = True
        self.endpoint.disconnected(self)  # gives back what it still counts as blocked
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
        """Send what is ready at the head of the queue."""
        self.take_ready()
        if self.out:
            self.write()

    def take_ready(self) -> None:
        """Take what is ready at the head of the queue out of it, to be sent."""
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
        """One write for everything ready."""
        out = self.out
        if not self.transport.is_closing():
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        if self.state.closing and not self.queue:
            self.transport.close()


def _size(commands: list[list[bytes]]) -> int:
    return sum([sum(map(len, command)) for command in commands])
