"""The agent, its clients, and turns that end when they are told to."""

from collections.abc import Callable
from typing import Any

from quorate.facts.keyspace import key_partition
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Heartbeat
from quorate.protocol.settings import DEFAULTS
from quorate_agent.clients.connection import Slot
from quorate_agent.clients.turn_share import TurnShare
from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_agent.commands.large_commands import LargeCommands
from quorate_agent.machine.clock import Clock, MachineClock
from quorate_agent.metrics import AgentMetrics
from quorate_agent.storage.memory import MemoryStorage
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.clock import MovedClock

ZONE = ZoneRecord("uid-1", "books", 4, 1, StorageKind.IN_MEMORY)
OTHER = Holder("b", "s-b.1", 1)
"""Another agent, of which only the name is there."""


def replicas_in_memory(
    zone: ZoneRecord, me: Holder, now: Now, memory_bytes: int = 1 << 20
) -> Replicas:
    """The copies of a zone that has none yet here."""
    storage = MemoryStorage(memory_bytes)
    return Replicas(zone, me, storage, Leases(DEFAULTS, 1, 0), DEFAULTS, now)


def endpoint_of(
    replicas: Replicas,
    nodes: dict[str, tuple[str, int]],
    send: Callable[[Message], None],
    is_up: Callable[[str], bool] | None = None,
    is_full: Callable[[], bool] = lambda: False,
    outside: dict[str, tuple[str, int]] | None = None,
    clock: Clock | None = None,
    large: LargeCommands | None = None,
    metrics: AgentMetrics | None = None,
) -> ZoneEndpoint:
    """The endpoint of these copies; `nodes`: who is there, with their addresses; all are up.
    `outside`: their external addresses.

    However long commands take, no turn is over before it is told to.
    """
    found = {} if outside is None else outside
    return ZoneEndpoint(
        replicas,
        node=replicas.me.node,
        turn=lambda: None,
        nodes=lambda external: found if external else nodes,
        is_up=is_up or nodes.__contains__,
        metrics=metrics or AgentMetrics(),
        why_full=lambda: "no room" if is_full() else "",
        process="process",
        send=lambda node, message: send(message),
        clock=clock or MachineClock(),
        large=large,
        share=TurnShare(clock=lambda: 0.0),
    )


class Agent:
    """One agent that is primary of all partitions of a zone, alone; turns end when told to."""

    def __init__(self, memory_bytes: int = 1 << 20, large: LargeCommands | None = None) -> None:
        self.clock = MovedClock()
        self.metrics = AgentMetrics()
        self.me = Holder("a", "s-a.1", 1)
        self.replicas = replicas_in_memory(ZONE, self.me, self._now(), memory_bytes)
        self.sent: list[Any] = []
        self.up = {"a", "b"}
        self.is_full = False
        self.nodes = {"a": ("a", 1), "b": ("b", 2)}
        self.outside: dict[str, tuple[str, int]] = {}
        self.endpoint = endpoint_of(
            self.replicas,
            self.nodes,
            self.sent.append,
            lambda node: node in self.up,
            lambda: self.is_full,
            self.outside,
            self.clock,
            large,
            self.metrics,
        )
        self.said: list[tuple[str, Message]] = []
        self._version = 0
        self._turns: list[Turn] = []
        members = [NodeRecord(name, f"s-{name}", 1, "h", 1, "h") for name in "ab"]
        self.replicas.set_members(members)
        self.give(self.me, range(4))

    def _now(self) -> Now:
        return Now(0, self.clock.boot_ms())

    def beat(self, node: str) -> Heartbeat:
        """Ask another agent for its lease."""
        return self.replicas.leases.heartbeat(node, self._now())

    def hear_beat(self, node: str, heartbeat: Heartbeat) -> None:
        """Another agent asks for the lease."""
        self.replicas.leases.answer(node, heartbeat, self._now())

    def give(self, holder: Holder, partitions: Any) -> None:
        """A row in a new term that makes `holder` primary of these."""
        self._set_rows(holder, holder, partitions)

    def lose_primary(self, partition: int) -> None:
        """A row in a new term without a primary; the other agent is its owner."""
        self._set_rows(None, OTHER, [partition])

    def _set_rows(self, primary: Holder | None, owner: Holder, partitions: Any) -> None:
        self._version += 1
        voter = (Voter(owner.node, owner.store),)
        version = self._version
        rows = [
            PartitionRow(partition, version, version, primary, (owner.node,), voter)
            for partition in partitions
        ]
        self.replicas.set_rows(rows, self._now())
        self.endpoint.table_changed()
        self.turn()

    def turn(self) -> None:
        """End turns until everything is durable and told."""
        for _ in range(4):
            self.written()
            self.synced()

    def tick(self, after_ms: int = 0) -> None:
        """So much time has passed; then turns to their end."""
        self.clock.ahead_ms += after_ms
        self.replicas.tick(self._now())
        self.turn()

    def written(self) -> None:
        """End a turn whose batch is not durable yet."""
        turn = self.replicas.flush(self._now())
        self.said += turn.sends
        self._turns.append(turn)
        self.endpoint.settle()

    def synced(self) -> None:
        """Everything written so far is durable."""
        turns, self._turns = self._turns, []
        for turn in turns:
            self.said += self.replicas.synced(turn, self._now())
        self.endpoint.settle()

    def receive(self, node: str, message: Message) -> None:
        """Another agent says something; then turns to their end."""
        self.replicas.receive(node, message, self._now())
        self.turn()

    def forwarded(self, client: KeptClient, reply: bytes) -> None:
        """The other agent has answered the command that the client waits for."""
        slot = client.connection.queue[0]
        assert isinstance(slot, Slot)
        self.endpoint.answers.fulfil(client.connection, slot, reply)
        self.endpoint.settle()

    def client(self, *options: bytes, resp3: bool = True) -> KeptClient:
        """A connection; with options, or none at all, it tracks."""
        client = KeptClient(self.endpoint)
        if resp3:
            client.ask(b"HELLO", b"3")
        assert client.ask(b"CLIENT", b"TRACKING", b"ON", *options) == [b"OK"]
        return client

    def writer(self) -> KeptClient:
        """A connection that does not track."""
        return KeptClient(self.endpoint)

    def execute(self, client: KeptClient, *commands: tuple[bytes, ...]) -> Any:
        """The reply to EXEC, of a transaction with these commands."""
        client.send((b"MULTI",), *commands)
        found = client.ask(b"EXEC")
        for _ in range(3):
            self.turn()
        (reply,) = found + client.told()
        return reply

    def write(self, *words: bytes) -> None:
        """A command of somebody else, to its end."""
        self.writer().ask(*words)
        self.turn()


def key_in(partition: int, name: bytes = b"k") -> bytes:
    """A key of this partition that begins so."""
    numbered = (name + b"%d" % number for number in range(1000))
    return next(key for key in numbered if key_partition(key, ZONE.partitions) == partition)
