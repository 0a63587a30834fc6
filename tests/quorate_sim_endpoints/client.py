"""A client of a simulated cluster: sends bytes, follows redirections, notes what it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate_differential.kept_client import KeptClient
from quorate_differential.raw_replies import encode_command
from quorate_sim.linearizability import Call
from quorate_sim.world import MS

if TYPE_CHECKING:
    from quorate_sim_endpoints.endpoint_process import EndpointProcess
    from quorate_sim_endpoints.story import Story

PATIENCE_MS = 15_000
AGAIN_MS = 50
"""So long a client waits that was told to come again."""

KINDS = {  # with the kind of keys that each is for: numbers, texts, and what is set
    "get": (b"GET", b"ans"),
    "set": (b"SET", b"s"),
    "set if absent": (b"SET", b"s"),
    "del": (b"DEL", b"ans"),
    "incr": (b"INCR", b"n"),
    "get and delete": (b"GETDEL", b"s"),
    "append": (b"APPEND", b"a"),
}
WEIGHTS = (2, 1, 2, 1, 2, 1, 1)


class _Connection:
    def __init__(self, agent: EndpointProcess) -> None:
        self.agent = agent
        (zone,) = agent.core.zones.values()
        self._client = KeptClient(agent.endpoint(zone))
        self.told = self._client.told

    def send(self, data: bytes) -> None:
        def take() -> None:
            if not self._client.socket.closed:
                self._client.connection.data_received(data)

        self.agent.run(take)

    def end(self) -> None:
        if self.agent.alive:
            self.agent.run(self._client.leave)


class Client:
    """One command at a time, some of them in `MULTI`."""

    def __init__(self, story: Story, number: int) -> None:
        self._story = story
        self._world = story.cluster.world
        self._random = story.random
        self._label = f"client {number}"
        self._connection: _Connection | None = None
        self._towards = ""  # who is said to have the key
        self._again_us = 0
        self.command: tuple[str, bytes, bytes] | None = None  # kind, key, value
        self._is_transaction = False
        self._sent_us = 0
        self._told: list[Any] = []

    def step(self) -> None:
        """Look what has come, go on."""
        if self._story.is_over and self.command is None:
            return
        self._world.after(self._random.choice((1, 1, 2, 5)) * MS, self.step)
        if self._connection is not None and not self._connection.agent.alive:
            self._connection = None
            if self.command is not None:
                self._end(None)
        if self._connection is None and not self._connect():
            return
        if self.command is None:
            if self._random.random() < 0.5:
                self._choose()
                self._send()
        elif self._again_us:
            if self._world.time_us >= self._again_us:
                self._send()
        else:
            self._read()

    def _connect(self) -> bool:
        living = [agent for agent in self._story.cluster.processes() if agent.core.zones]
        wanted = [agent for agent in living if agent.name == self._towards] or living
        if not wanted:
            return False
        self._connection = _Connection(self._random.choice(wanted))
        self._towards = ""
        return True

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.end()
        self._connection = None

    def _choose(self) -> None:
        (kind,) = self._random.choices(list(KINDS), WEIGHTS)
        names = KINDS[kind][1]
        at = self._random.randrange(len(names))
        key = names[at : at + 1] + b"%d" % self._random.randrange(self._story.keys)
        self.command = kind, key, self._story.new_value()
        self._is_transaction = self._random.random() < 0.25

    def _send(self) -> None:
        assert self.command is not None
        assert self._connection is not None
        kind, key, value = self.command
        words = [KINDS[kind][0], key]
        if kind in ("set", "set if absent", "append"):
            words.append(value)
        if kind == "set if absent":
            words.append(b"NX")
        data = encode_command(words)
        if self._is_transaction:
            data = encode_command([b"MULTI"]) + data + encode_command([b"EXEC"])
        self._sent_us, self._again_us, self._told = self._world.time_us, 0, []
        if self._world.tracing:
            where = self._connection.agent.label
            self._world.trace(self._label, f"{words} at {where}, {self._is_transaction=}")
        self._connection.send(data)

    def _read(self) -> None:
        assert self._connection is not None
        self._told += self._connection.told()
        if len(self._told) >= (3 if self._is_transaction else 1):
            refused = self._is_transaction and isinstance(self._told[1], Exception)
            self._take(self._told[1] if refused else self._told[-1])
        elif self._world.time_us - self._sent_us > PATIENCE_MS * MS:
            raise AssertionError(f"{self._label}: no reply to {self.command}, {self._told}")

    def _take(self, reply: Any) -> None:
        if not isinstance(reply, Exception):
            if self._is_transaction:
                assert isinstance(reply, list), f"{self.command}: EXEC says {reply}"
                (reply,) = reply
            self._end((b"%d" % reply if isinstance(reply, int) else reply,))
            return
        word = str(reply).split()[0]
        if word == "UNKNOWN":
            self._end(None)
        elif word == "MOVED":
            self._leave()
            self._towards = str(reply).split()[2].rpartition(":")[0]
            if self._connect():
                self._send()
            else:
                self.command = None
        elif word in ("CLUSTERDOWN", "OOM", "MISCONF"):  # nothing has happened
            self._again_us = self._world.time_us + AGAIN_MS * MS
        else:
            raise AssertionError(f"{self._label}: {reply} to {self.command}")

    def _end(self, result: tuple[bytes | None] | None) -> None:
        """The command has a reply; None: nobody knows whether it was executed."""
        assert self.command is not None
        kind, key, value = self.command
        now = self._world.time_us
        took = f"{self._sent_us / MS:.2f} to {now / MS:.2f}"
        name = f"{self._label}, {took}: {kind} {key!r} {value!r} -> {result}"
        if self._world.tracing:
            self._world.trace(self._label, name)
        if result is not None:
            call = Call(self._sent_us, now, kind, value, result[0], name)
            self._story.histories[key].append(call)
        elif kind != "get":
            self._story.histories[key].append(Call(self._sent_us, None, kind, value, None, name))
        self.command = None
        if result is None or self._random.random() < 0.01:
            self._leave()
