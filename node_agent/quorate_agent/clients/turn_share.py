"""The share of a turn that clients may use; the rest is for other agents, leases and the master.

A loop that reads thousands of busy connections before it comes back to its peers would let leases
run out.  So a turn is bounded in the time it executes commands and in the bytes it cuts into
commands.  What exceeds that waits in its connection, which is not read meanwhile.  Connections take
turns in small portions, so that a client with a few commands does not wait for clients with many.
When too many commands wait, further long pipelines are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorate.facts.keyspace import RESERVED
from quorate_agent.clients.connection import ClientConnection
from quorate_agent.resp.replies import RefusedWatch, error
from quorate_agent.resp.slow_log import SlowLog

QUANTUM = 128
"""Commands that one connection executes before the next gets its turn.

A client that sends one command waits for a few of each other client, not for all of theirs."""

COMMANDS_PER_TURN = 4096
"""However fast commands are: a turn's updates go to other agents in one piece."""

TURN_S = 0.02
"""Seconds per turn for executing commands.

A heartbeat may wait for a turn here, for one at the agent that answers it, and for another here.
Together with the other work of these turns, on a busy machine, that must stay far below a lease."""

FEW = 16
"""Connections with at most this many commands get a second share once the turn's is used up."""

CUT_BYTES_PER_TURN = 256 * 1024
"""Bytes of long reads, of all connections: thousands of small commands, some 10 ms."""

LARGE_BYTES = 1024 * 1024
"""A command that has or writes at least so many bytes waits until earlier ones are acknowledged."""

WAITING_MAX = 200_000
"""Commands of all connections that may wait for a later turn: some 100 MB."""

OVERLOADED = error(b"OOM this agent has the maximum number of waiting commands: try again later")


class TurnShare:
    """The commands that one zone's clients may still execute in this turn, and the connections that
    wait for the next.

    `slow_log` says how long a command may take unnoticed; `command_began`: when the present one
    began."""

    def __init__(self, clock: Callable[[], float], slow_log: SlowLog | None = None) -> None:
        self._clock = clock
        self.slow_log = slow_log or SlowLog()
        self.command_began = clock()
        self._until = self.command_began + 2 * TURN_S
        self._began = clock()
        self._executed = 0
        self._look_at = QUANTUM
        self._waiting = 0
        self._late: dict[ClientConnection, None] = {}
        self._cut_bytes = 0

    def takes(self, count: int) -> bool:
        """Return whether `count` more commands may be executed now; if so, count them."""
        executed = self._executed + count
        if executed > self._look_at:  # the clock is read only then
            shares = 2 if count <= FEW else 1
            if (
                self._executed >= COMMANDS_PER_TURN * shares
                or self._clock() >= self._began + TURN_S * shares
            ):
                return False
            self._look_at = min(executed + QUANTUM, COMMANDS_PER_TURN)
        self._executed = executed
        return True

    def goes_on(self) -> bool:
        """Return whether the last command was not slow, and there is time for another.

        If not, `command_took` and `has_time` say more."""
        now = self._clock()
        if now - self.command_began < self.slow_log.over_s and now < self._until:
            self.command_began = now
            return True
        return False

    def begin_command(self) -> None:
        """Time what is executed from now on."""
        self.command_began = self._clock()

    def command_took(self) -> float:
        """Return the seconds that the last command took, and time the next one."""
        began, self.command_began = self.command_began, self._clock()
        return self.command_began - began

    def has_time(self) -> bool:
        """Return whether there is time for another command after one that may have taken long.

        If not, no other command of this turn gets any."""
        if self._clock() < self._until:
            return True
        self._look_at = 0
        return False

    def keep(self, client: ClientConnection, commands: Sequence[list[bytes]], now_ms: int) -> bool:
        """Let a connection wait with its commands, behind those that wait already.

        Returns False if there is no room: the commands are refused.  Clients that send only a few
        are never refused."""
        if (
            self._waiting + len(commands) > WAITING_MAX
            and len(commands) > QUANTUM
            and not client.backlog
            and client.state.transaction is None
        ):
            _refuse(client, commands)
            return False
        client.backlog.extend([(now_ms, command) for command in commands])
        self._waiting += len(commands)
        self._late[client] = None
        client.pause()
        return True

    def cuts(self, client: ClientConnection) -> bool:
        """Return whether to cut into commands now what the connection has read; else it waits."""
        if self._cut_bytes >= CUT_BYTES_PER_TURN:
            self._late[client] = None
            client.pause()
            return False
        self._cut_bytes += len(client.unread)
        return True

    def begin(self, touched: dict[ClientConnection, None]) -> None:
        """Begin a turn; connections that wait go first, in the order in which they came."""
        self._executed = self._waiting = self._cut_bytes = 0
        self._look_at = QUANTUM
        self._began = self._clock()
        self._until = self._began + 2 * TURN_S
        if not self._late:
            return
        late, self._late = self._late, {}
        for client in touched:
            late.setdefault(client, None)
        touched.clear()
        touched.update(late)

    @property
    def is_over(self) -> bool:
        """Whether any connection waits for the next turn."""
        if self._late:
            self._waiting = sum(len(client.backlog) for client in self._late)
        return bool(self._late)

    def client_gone(self, client: ClientConnection) -> None:
        """Forget a client whose connection has ended."""
        self._late.pop(client, None)


def _refuse(client: ClientConnection, commands: Sequence[list[bytes]]) -> None:
    """Refuse the commands; close the connection if the end of a transaction is still to come.

    Executed alone, its last commands would be half of it."""
    state, begun = client.state, False
    for args in commands:
        client.answer(OVERLOADED)
        if isinstance(args[0], RefusedWatch) and not begun:
            state.unwatched.add(RESERVED)
        match args[0].lower():
            case b"multi":
                begun = True
            case b"watch" if not begun:
                state.unwatched.update([key for key in args[1:] if key not in state.watched])
            case b"exec" | b"discard" if begun:
                begun = False
                state.unwatch()  # it is over, and no later one is to depend on what it watched
            case b"reset":
                begun = False
                state.unwatch()
            case b"unwatch" if not begun:
                state.unwatch()
            case _:
                pass
    if begun:
        state.closing = True
