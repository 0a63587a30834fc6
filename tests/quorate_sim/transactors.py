"""Clients of transactions: which lists they append to and read, and what they were told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from quorate.facts.errors import InvariantError
from quorate.facts.keyspace import key_partition
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.transactions import PreparePart
from quorate.protocol.transactions.coordinator import Ended, Outcome, PartWanted
from quorate.protocol.transactions.parts import Evaluated
from quorate_sim.serializability import Step, Txn, problem
from quorate_sim.world import MS

if TYPE_CHECKING:
    from quorate_sim.agent_process import AgentProcess
    from quorate_sim.cluster import Cluster

PATIENCE_MS = 4000
"""How long a client waits for its answer before it counts the outcome as unknown."""

DEADLINE_MS = 2000
"""How long an agent tries to get a transaction prepared."""

ZONE = "zone"
LISTS = 6


class Transaction:
    """One transaction of one client: each list, and the item for it or None."""

    __slots__ = ("client", "end_us", "number", "outcome", "seen", "start_us", "wants")

    def __init__(
        self, number: int, client: int, wants: dict[bytes, bytes | None], start_us: int
    ) -> None:
        self.number = number
        self.client = client
        self.wants = wants
        self.start_us = start_us
        self.end_us: int | None = None
        self.outcome: Outcome | None = None
        self.seen: dict[bytes, tuple[bytes, ...]] = {}

    def parts(self, partitions: int) -> tuple[PartWanted, ...]:
        """What it wants of each partition."""
        keys: dict[int, list[bytes]] = {}
        for key in self.wants:
            keys.setdefault(key_partition(key, partitions), []).append(key)
        return tuple(
            [
                PartWanted(
                    partition,
                    tuple(keys[partition]),
                    tuple([(key, self.wants[key] or b"") for key in keys[partition]]),
                    (),
                )
                for partition in sorted(keys)
            ]
        )

    def __repr__(self) -> str:
        end = "" if self.end_us is None else f"{self.end_us / MS:.3f}"
        said = self.outcome.value if self.outcome is not None else "open"
        return (
            f"#{self.number} t{self.client} {self.wants} [{self.start_us / MS:.3f}..{end}] "
            f"{said} {self.seen}"
        )


def evaluate(role: Primary, ask: PreparePart) -> Evaluated:
    """Append and read, as an agent executes commands: items are joined by commas."""
    operations, answers = [], []
    for key, item in ask.commands:
        row = role.copy.get(key)
        value = b"" if row is None or row.value is None else row.value
        if item:
            value += b"," + item
            operations.append((key, value, 0))
        answers.append(value)
    return Evaluated(tuple(operations), tuple(answers))


class Transactors:
    """Clients that each send one transaction after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history: list[Transaction] = []
        self.stopped = False
        self.on_ended: Callable[[Ended], None] | None = None
        self._open: dict[int, Transaction] = {}
        self._number = 0

    def start(self) -> None:
        """All clients begin."""
        for client in range(self.cluster.swarm.transactors):
            self.world.after(client * 11 * MS, partial(self._next, client))

    def _next(self, client: int) -> None:
        if self.stopped:
            return
        r = self.world.random
        count = r.choice((1, 2, 2, 3))
        keys = r.sample([b"t%d" % number for number in range(LISTS)], count)
        items = {key: b"%d.%d" % (self._number, at) for at, key in enumerate(keys)}
        wants = {key: item if r.random() < 0.7 else None for key, item in items.items()}
        living = [agent for agent in self.cluster.living() if ZONE in agent.core.zones]
        if not living:
            self._pause(client)
            return
        self.send(client, r.choice(living), wants)

    def send(
        self, client: int, agent: AgentProcess, wants: dict[bytes, bytes | None]
    ) -> Transaction:
        """One transaction, to this agent."""
        txn = Transaction(self._number, client, wants, self.world.time_us)
        self._number += 1
        self._open[txn.number] = txn
        self.world.after(
            self.world.random.randrange(50, 2000), lambda: agent.run(lambda: agent.transact(txn))
        )
        self.world.after(PATIENCE_MS * MS, lambda: self._end(txn, Outcome.UNKNOWN))
        return txn

    def answer(self, ended: Ended) -> None:
        """An agent answers; the client hears of it a little later, or never."""
        if self.on_ended is not None:
            self.on_ended(ended)
        txn = ended.cargo
        assert isinstance(txn, Transaction)
        outcome = ended.outcome
        if outcome is Outcome.COMMITTED:
            keys = [key for part in self.parts_of(txn) for key in part.keys]
            values = [value for answers in ended.answers.values() for value in answers]
            txn.seen = {
                key: tuple(value.split(b",")[1:]) for key, value in zip(keys, values, strict=True)
            }
        if outcome is not Outcome.UNKNOWN and self.world.chance(self.cluster.lost_answers):
            outcome = Outcome.UNKNOWN
        self.world.after(self.world.random.randrange(50, 2000), lambda: self._end(txn, outcome))

    def parts_of(self, txn: Transaction) -> tuple[PartWanted, ...]:
        """What it wants of each partition of its zone."""
        return txn.parts(self.cluster.zones[ZONE].partitions)

    def _end(self, txn: Transaction, outcome: Outcome) -> None:
        if self._open.pop(txn.number, None) is None:
            return
        txn.outcome = outcome
        if outcome is Outcome.COMMITTED:
            txn.end_us = self.world.time_us
        if self.world.tracing:
            self.world.trace(f"transactor {txn.client}", str(txn))
        if outcome in (Outcome.COMMITTED, Outcome.UNKNOWN):
            self.history.append(txn)
        self._pause(txn.client)

    def _pause(self, client: int) -> None:
        if client >= 0:
            pause = self.world.random.choice((1, 5, 30, 100)) * MS
            self.world.after(pause, lambda: self._next(client))

    def left(self) -> list[str]:
        """What is not yet at rest: transactions without an answer, parts that nobody has ended."""
        found = [f"I-10: not answered: {txn}" for txn in self._open.values()]
        for agent in self.cluster.living():
            zone = agent.core.zones.get(ZONE)
            for role in zone.roles.values() if zone is not None else ():
                if role.parts:
                    found.append(f"{agent.label} still has parts of {list(role.parts)}")
                if role.locks:
                    found.append(f"{agent.label} still locks {role.locks}")
        return found

    def check(self) -> None:
        """Everything is explained by some order of the transactions, and by the lists now."""
        last: dict[bytes, tuple[bytes, ...]] = {}
        for key in (b"t%d" % number for number in range(LISTS)):
            partition = key_partition(key, self.cluster.zones[ZONE].partitions)
            for agent in self.cluster.living():
                role = self.cluster.role_of(agent, ZONE, partition)
                if role is not None and role.serves(agent.now().boot_ms):
                    row = role.copy.get(key)
                    value = b"" if row is None or row.value is None else row.value
                    last[key] = tuple(value.split(b",")[1:])
        torn = self.cluster.checks.resets.torn[ZONE]
        partitions = self.cluster.zones[ZONE].partitions
        happened: list[Txn] = []
        for txn in self.history:
            torn_keys = [key for key in txn.wants if key_partition(key, partitions) in torn]
            happened += _torn(txn, torn_keys) if torn_keys else [_told(txn)]
        last = {k: items for k, items in last.items() if key_partition(k, partitions) not in torn}
        if found := problem(happened, last):
            story = "\n  ".join(str(txn) for txn in self.history)
            raise InvariantError(f"not serializable: {found}\n  {story}")


def _torn(txn: Transaction, torn: Collection[bytes]) -> list[Txn]:
    """The knowledge of a transaction of which a reset may have taken a part, or the decision.

    Of its other parts each has happened or not.
    """
    return [
        Txn(f"{txn} of {key!r}", txn.start_us, None, (Step(key, item, None),))
        for key, item in txn.wants.items()
        if key not in torn
    ]


def _told(txn: Transaction) -> Txn:
    known = txn.outcome is Outcome.COMMITTED
    steps = [
        Step(key, item, txn.seen.get(key) if known else None) for key, item in txn.wants.items()
    ]
    return Txn(str(txn), txn.start_us, txn.end_us, tuple(steps))
