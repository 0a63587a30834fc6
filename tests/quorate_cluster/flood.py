"""Clients that send more than is answered: connections with long pipelines, all at once.

Commands are sent whether or not the earlier ones were answered; what an agent does not take stays
here, as it would in any client whose socket is full.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from quorate_cluster.background import Background
from quorate_cluster.processes import HOST
from quorate_differential.raw_replies import encode_command

_SEND_S = 0.01
"""How often more is sent."""

_OWED_S_MAX = 1.0
"""What could not be sent for longer will not be made good later."""


@dataclass
class Pour:
    """A number of connections to one agent, which send the same commands over and over.

    `commands` are of one length; `per_s`: of all its connections together, as many as are taken
    unless it is said.  Threads count here, and nobody else.
    """

    port: int
    commands: Sequence[bytes]
    connections: int
    per_s: float | None = None
    sent_bytes: int = field(default=0, init=False)
    answered: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)
    """Of the answers, those that said -OOM."""
    errors: int = field(default=0, init=False)
    """Of the answers, all other errors."""
    broken: int = field(default=0, init=False)
    """Connections that ended."""
    first_error: str = field(default="", init=False)

    def count(self, replies: bytes) -> None:
        """Whole replies without a dash, a plus or a dollar in their values."""
        refused = replies.count(b"-OOM")
        errors = replies.count(b"\n-") + replies.startswith(b"-") - refused
        self.refused += refused
        self.errors += errors
        self.answered += replies.count(b"+") + replies.count(b"$") + refused + errors
        if errors and not self.first_error:
            lines = replies.decode(errors="replace").splitlines()
            self.first_error = next(
                line for line in lines if line.startswith("-") and not line.startswith("-OOM")
            )


class _Line:
    """One connection: what of the stream is to be sent next, and the begin of a reply."""

    def __init__(self, port: int, at: int) -> None:
        self.at = at
        self.rest = b""
        self.socket = socket.create_connection((HOST, port), 10)
        self.socket.setblocking(False)


class Flood(Background):
    """`with Flood(pours):` every pour in a thread of its own, until the end of the block."""

    def __init__(self, pours: Sequence[Pour]) -> None:
        super().__init__()
        self.pours = pours
        for pour in pours:
            self.add_road(partial(self._run, pour))

    def total(self, of: Callable[[Pour], int]) -> int:
        """A count over all pours."""
        return sum(map(of, self.pours))

    def _run(self, pour: Pour) -> None:
        stream = memoryview(b"".join(pour.commands))
        size = len(pour.commands[0])
        assert len(stream) == size * len(pour.commands), "commands of several lengths"
        lines = [
            _Line(pour.port, number * 997 % len(pour.commands) * size)
            for number in range(pour.connections)
        ]
        try:
            self._pour(pour, stream, size, {each.socket.fileno(): each for each in lines})
        finally:
            for each in lines:
                each.socket.close()

    def _pour(self, pour: Pour, stream: memoryview, size: int, lines: dict[int, _Line]) -> None:
        bytes_per_s = float("inf") if pour.per_s is None else pour.per_s * size
        order = list(lines.values())
        owed, first, sent_at = 0.0, 0, time.monotonic()
        with select.epoll() as poll:
            for fd in lines:
                poll.register(fd, select.EPOLLIN)
            while lines and not self.stop.is_set():
                for fd, _ in poll.poll(_SEND_S):
                    if not self._receive(pour, lines[fd]):
                        pour.broken += 1
                        poll.unregister(fd)
                        order.remove(lines.pop(fd))
                now = time.monotonic()
                if now - sent_at < _SEND_S:
                    continue
                owed = min(owed + bytes_per_s * (now - sent_at), bytes_per_s * _OWED_S_MAX)
                sent_at = now
                for number in range(len(order)):
                    if owed < size:
                        first += number  # the next time begins with those that had no turn
                        break
                    line = order[(first + number) % len(order)]
                    sent = self._send(line, stream, min(owed, len(stream)))
                    pour.sent_bytes += sent
                    owed -= sent

    @staticmethod
    def _send(line: _Line, stream: memoryview, limit: float) -> int:
        try:
            sent = line.socket.send(stream[line.at : line.at + int(limit)])
        except OSError:  # it is full; one that broke is found when it is read
            return 0
        line.at = (line.at + sent) % len(stream)
        return sent

    @staticmethod
    def _receive(pour: Pour, line: _Line) -> bool:
        """Count what came; False when the connection has ended."""
        try:
            data = line.socket.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        whole = data.rfind(b"\n") + 1
        pour.count(line.rest + data[:whole] if whole else b"")
        line.rest = data[whole:] if whole else line.rest + data
        return bool(data)


def commands(keys: Sequence[bytes], value: bytes | None = None) -> list[bytes]:
    """A SET of each key, or without a value a GET."""
    if value is None:
        return [encode_command([b"GET", key]) for key in keys]
    return [encode_command([b"SET", key, value]) for key in keys]
