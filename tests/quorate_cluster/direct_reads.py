"""Reads sent to every agent alike, also to one that is frozen: what it says when it thaws counts.

A client that follows the topology does not ask an agent that has lost its partitions, and one that
waits for each answer has asked before they were lost.  Here questions go on being sent and pile up
in the socket of a frozen agent; what it answers as the primary it no longer is, is a stale read.
"""

import random
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import hiredis

_KEYS_AT_ONCE = 8

Answered = Callable[[str, bytes | None, float, float], None]
"""(key, what was read, when it was asked, when the answer was seen)."""


class _Line:
    """One connection to one agent and the questions on it that are not answered yet."""

    def __init__(self, port: int) -> None:
        self._asked: deque[tuple[str, float]] = deque()
        self._reader = hiredis.Reader()
        self._socket = socket.create_connection(("127.0.0.1", port), 0.2)
        self._socket.setblocking(False)

    def ask(self, keys: Sequence[str]) -> None:
        now = time.monotonic()
        words = [b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(k), k.encode()) for k in keys]
        self._socket.sendall(b"".join(words))
        self._asked += [(key, now) for key in keys]

    def take(self, answered: Answered) -> None:
        """Hand on what came; OSError when the agent is gone."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        now = time.monotonic()
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            key, asked = self._asked.popleft()
            if answer is None or isinstance(answer, bytes):  # anything else is a redirection
                answered(key, answer, asked, now)

    def close(self) -> None:
        self._socket.close()


class DirectReads:
    """Lines to all `ports`; `step` takes what was answered and asks for `at_once` of some keys more
    on each.  A line answers in order: behind a read that waits, all others wait."""

    def __init__(
        self,
        ports: Sequence[int],
        chance: random.Random,
        answered: Answered,
        at_once: int = _KEYS_AT_ONCE,
    ) -> None:
        self._ports = ports
        self._chance = chance
        self._answered = answered
        self._at_once = at_once
        self._lines: dict[int, _Line] = {}

    def step(self, keys: Sequence[str]) -> None:
        for port in self._ports:
            with suppress(OSError):  # the agent is down: it is called again next time
                self._step(port, self._chance.choices(keys, k=self._at_once))
                continue
            line = self._lines.pop(port, None)
            if line is not None:
                line.close()

    def _step(self, port: int, keys: Sequence[str]) -> None:
        line = self._lines.get(port)
        if line is None:
            line = self._lines[port] = _Line(port)
        line.take(self._answered)
        line.ask(keys)

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
