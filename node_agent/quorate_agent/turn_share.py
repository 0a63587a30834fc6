"""How much of a turn clients may have: the rest is for other agents, leases and the master.

A loop that reads thousands of busy connections before it comes back to its peers would let leases
run out.  So a turn executes a number of commands; what comes on top waits in its connection's
backlog, and the connection is not read meanwhile.  Connections take turns in small portions.  When
too many commands wait, further long pipelines are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate_agent.client import ClientConnection
from quorate_agent.resp.replies import error

QUANTUM = 128
"""Commands of one connection before the next has its turn: a client that sends one waits for a few
of each other, not for all that they have sent."""

COMMANDS_PER_TURN = 4096
"""20 to 50 ms of plain commands: a small part of a lease."""

WAITING_MAX = 200_000
"""Commands that wait for their turn, of all connections: some 100 MB."""

OVERLOADED = error(b"OOM this agent has as many commands waiting as it holds: try again later")


class TurnShare:
    """The commands that one zone's clients may still execute in this turn, and who waits."""

    def __init__(self) -> None:
        self._executed = 0
        self._waiting = 0
        self._late: dict[ClientConnection, None] = {}

    def takes(self, count: int) -> bool:
        """Whether `count` more commands may be executed now."""
        if self._executed >= COMMANDS_PER_TURN:
            return False
        self._executed += count
        return True

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

    def begin(self, touched: dict[ClientConnection, None]) -> None:
        """A new turn begins: those that wait come first, in the order in which they came."""
        self._executed = self._waiting = 0
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
