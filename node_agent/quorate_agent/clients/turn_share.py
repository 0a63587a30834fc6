"""How much of a turn clients may have: the rest is for other agents, leases and the master.

A loop that reads thousands of busy connections before it comes back to its peers would let leases
run out.  So a turn executes commands for some time, and cuts so many bytes into commands; what
comes on top waits with its connection, which is not read meanwhile.  Connections take turns in
small portions, and a client that sends a few commands does not wait for those that send many.  When
too many commands wait, further long pipelines are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from quorate_agent.clients.connection import ClientConnection
from quorate_agent.resp.replies import error

QUANTUM = 128
"""Commands of one connection before the next has its turn: a client that sends one waits for a few
of each other, not for all that they have sent."""

COMMANDS_PER_TURN = 4096
"""However fast they are: their updates go to other agents in one piece."""

TURN_S = 0.02
"""A heartbeat waits for a turn here, one where it is answered, and one here again: with what else a
turn does, on a machine with more to do, that must stay far below a lease."""

FEW = 16
"""So many commands at once may use another share, when that of the others is over."""

CUT_BYTES_PER_TURN = 256 * 1024
"""Of long reads, by all connections: thousands of small commands, some 10 ms."""

WAITING_MAX = 200_000
"""Commands that wait for their turn, of all connections: some 100 MB."""

OVERLOADED = error(b"OOM this agent has as many commands waiting as it holds: try again later")


class TurnShare:
    """The commands that one zone's clients may still execute in this turn, and who waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._executed = 0
        self._look_at = QUANTUM
        self._waiting = 0
        self._late: dict[ClientConnection, None] = {}
        self._cut_bytes = 0

    def takes(self, count: int) -> bool:
        """Whether `count` more commands may be executed now."""
        executed = self._executed + count
        if executed > self._look_at:  # else there is no need for the time
            shares = 2 if count <= FEW else 1
            if (
                self._executed >= COMMANDS_PER_TURN * shares
                or self._clock() >= self._began + TURN_S * shares
            ):
                return False
            self._look_at = min(executed + QUANTUM, COMMANDS_PER_TURN)
        self._executed = executed
        return True

    def has_time(self) -> bool:
        """Whether there is time for another command behind one that was executed, however long that
        took; when there is none, nobody else takes any."""
        if self._clock() < self._began + 2 * TURN_S:
            return True
        self._look_at = 0
        return False

    def keep(self, client: ClientConnection, commands: Sequence[list[bytes]], now_ms: int) -> bool:
        """Let a connection wait with its commands, new ones behind those that wait already.

        False: there is no room, the commands are refused; never those of who sends a few."""
        if (
            self._waiting + len(commands) > WAITING_MAX
            and len(commands) > QUANTUM
            and not client.backlog
            and client.state.transaction is None
        ):
            for _ in commands:
                client.answer(OVERLOADED)
            return False
        client.backlog.extend([(now_ms, command) for command in commands])
        self._waiting += len(commands)
        self._late[client] = None
        client.pause()
        return True

    def cuts(self, client: ClientConnection) -> bool:
        """Whether what the connection has read is cut into commands now; else it waits."""
        if self._cut_bytes >= CUT_BYTES_PER_TURN:
            self._late[client] = None
            client.pause()
            return False
        self._cut_bytes += len(client.unread)
        return True

    def begin(self, touched: dict[ClientConnection, None]) -> None:
        """A new turn begins: those that wait come first, in the order in which they came."""
        self._executed = self._waiting = self._cut_bytes = 0
        self._look_at = QUANTUM
        self._began = self._clock()
        if not self._late:
            return
        late, self._late = self._late, {}
        for client in touched:
            late.setdefault(client, None)
        touched.clear()
        touched.update(late)

    @property
    def is_over(self) -> bool:
        """Whether anybody waits for the next turn."""
        if self._late:
            self._waiting = sum(len(client.backlog) for client in self._late)
        return bool(self._late)

    def client_gone(self, client: ClientConnection) -> None:
        """A client went away."""
        self._late.pop(client, None)
