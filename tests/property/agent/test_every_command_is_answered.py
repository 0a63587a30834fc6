"""Random clients with little room: every command is answered in its place, however it waited."""

from random import Random
from typing import Any

import pytest

from quorate_agent.clients import connection as client
from quorate_agent.clients import turn_share
from quorate_agent.commands import endpoint
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import Agent

LONG = b"x" * 700
ANY_NUMBER = int


class Client:
    """One connection: what it sends, in pieces, and what it is to be told."""

    def __init__(self, agent: Agent, number: int, random: Random) -> None:
        self.kept = agent.writer()
        self.told: list[Any] = []
        self.wanted: list[Any] = []
        self._random = random
        self._data = b""
        self._sent = 0
        self._half_closes = False
        for _ in range(random.randrange(1, 120)):
            self._command(b"%d" % number)
        self._says_quit = random.random() < 0.3
        if self._says_quit:
            self._ask([(b"QUIT",)], [b"OK"])
        elif random.random() < 0.3:
            self._half_closes = True

    def _command(self, mine: bytes) -> None:
        long = b"y" * self._random.choice((10, 500, 3000))
        transaction = [(b"MULTI",), (b"INCR", b"i" + mine), (b"SET", b"z", long), (b"EXEC",)]
        commands, replies = self._random.choice(
            (
                ([(b"SET", b"s" + mine, b"1")], [b"OK"]),
                ([(b"SET", b"s" + mine, b"2")], [b"OK"]),
                ([(b"GET", b"long")], [LONG]),
                ([(b"GET", b"long")], [LONG]),
                ([(b"SET", b"t", long)], [b"OK"]),
                ([(b"ECHO", mine)], [mine]),
                ([(b"WAIT", b"0", b"0")], [0]),
                ([(b"INCR", b"c" + mine)], [ANY_NUMBER]),
                (transaction, [b"OK", b"QUEUED", b"QUEUED", list]),
            )
        )
        self._ask(commands, replies)

    def _ask(self, commands: list[tuple[bytes, ...]], replies: list[Any]) -> None:
        self._data += b"".join(map(encode_command, commands))
        self.wanted += replies

    def send(self) -> bool:
        """Send another piece, if the agent reads; whether anything was left to be sent."""
        connection = self.kept.connection
        if connection.paused or self.kept.socket.closed:
            return False
        if self._sent < len(self._data):
            size = self._random.choice((5, 40, 150, 400, 1200, 5000))
            connection.data_received(self._data[self._sent : self._sent + size])
            self._sent += size
            return True
        if self._half_closes and not connection.ended:
            connection.eof_received()
            return True
        return False

    def check(self) -> None:
        """Everything was answered, in order, and who wanted to go was let go."""
        assert len(self.told) == len(self.wanted)
        for wanted, told in zip(self.wanted, self.told, strict=True):
            assert isinstance(told, wanted) if isinstance(wanted, type) else told == wanted
        assert not self.kept.connection.counted
        assert not self.kept.connection.held
        assert self.kept.socket.closed == (self._says_quit or self._half_closes)


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a hundred commands meet."""
    bounds = {
        client: {"QUEUE_BYTES_MAX": 2000, "QUEUE_MAX": 20, "BACKLOG_MAX": 20, "LONG_BYTES": 200},
        endpoint: {"QUANTUM": 8},
        turn_share: {
            "CUT_BYTES_PER_TURN": 1500,
            "QUANTUM": 8,
            "FEW": 2,
            "COMMANDS_PER_TURN": 64,
        },
    }
    for module, names in bounds.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)


# The last ones left a connection behind whose queue was answered while its commands were cut.
@pytest.mark.parametrize("seed", [*range(60), 156, 272, 553, 605])
def test_every_command_is_answered_in_its_place(seed: int) -> None:
    random = Random(seed)
    agent = Agent(1 << 28)
    agent.write(b"SET", b"long", LONG)
    clients = [Client(agent, number, random) for number in range(random.randrange(1, 5))]
    quiet = 0
    while quiet < 60:  # turns in which nobody had anything to send
        quiet += 1
        for _ in range(random.randrange(1, 6)):
            if random.choice(clients).send():
                quiet = 0
        if random.random() < 0.5 or quiet > 20:  # else the disk stands still
            agent.synced()
        agent.written()
        for each in clients:
            each.told += each.kept.told()
    for each in clients:
        each.check()
