"""A quiet cluster and one transaction over two of its partitions, to tell stories with."""

from collections.abc import Callable

from quorate.facts.keyspace import key_partition
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.transactions import TransactionMessage
from quorate.protocol.transactions.coordinator import Outcome
from quorate_sim.agent_process import AgentProcess
from quorate_sim.cluster import Cluster
from quorate_sim.scenario import SETTINGS
from quorate_sim.swarm import Swarm, zone_record
from quorate_sim.transactors import LISTS, ZONE, Transaction
from quorate_sim.world import MS

PARTITIONS = 8
LIST_KEYS = [b"t%d" % number for number in range(LISTS)]


class TransactionStory:
    """A quiet cluster of four agents, and two lists of partitions whose primaries differ.

    `home` is the primary of the lower partition, `other` of the higher one.  `coordinator` is
    neither, and has no copy of the lower one.
    """

    def __init__(self) -> None:
        swarm = Swarm(agents=4, zones=(zone_record(ZONE, PARTITIONS, 3),), settings=SETTINGS)
        self.cluster = Cluster(1, trace=True, swarm=swarm)
        self.world = self.cluster.world
        self.cluster.lost_answers = 0.0
        self.said: list[tuple[str, str, TransactionMessage]] = []
        self.on_said: Callable[[str, str, TransactionMessage], None] = lambda *_: None
        self._listen()
        self.rest()
        keys = sorted(LIST_KEYS, key=lambda key: key_partition(key, PARTITIONS))
        self.low, self.high, self.coordinator = next(
            (low, high, stranger)
            for at, low in enumerate(keys)
            for stranger in self.cluster.living()
            if stranger.name not in self.role(low).row.owners
            for high in keys[at + 1 :]
            if self.primary_of(high) not in (self.primary_of(low), stranger)
        )
        self.home, self.other = self.primary_of(self.low), self.primary_of(self.high)

    def _listen(self) -> None:
        def listen(node: str, to: str, message: TransactionMessage) -> None:
            self.said.append((node, to, message))
            self.on_said(node, to, message)

        self.cluster.coverage.on_transaction = listen

    def role(self, key: bytes) -> Primary:
        """Who serves the key, as primary."""
        partition = key_partition(key, PARTITIONS)
        role = self.cluster.role_of(self.primary_of(key), ZONE, partition)
        assert role is not None
        return role

    def primary_of(self, key: bytes) -> AgentProcess:
        """The agent that serves the key; waits until there is one."""
        partition = key_partition(key, PARTITIONS)
        found: list[AgentProcess] = []

        def is_served() -> bool:
            for agent in self.cluster.living():
                role = self.cluster.role_of(agent, ZONE, partition)
                if role is not None and role.serves(agent.now().boot_ms):
                    found.append(agent)
            return bool(found)

        self.wait(is_served, f"{key!r} is served")
        return found[0]

    def locks(self, key: bytes) -> bool:
        """Whether the key waits for a decision, as far as anybody serves it now."""
        partition = key_partition(key, PARTITIONS)
        roles = [self.cluster.role_of(agent, ZONE, partition) for agent in self.cluster.living()]
        return any(role is not None and key in role.locks for role in roles)

    def items(self, key: bytes) -> tuple[bytes, ...]:
        """The list, as its primary has it."""
        row = self.role(key).copy.get(key)
        return () if row is None or row.value is None else tuple(row.value.split(b",")[1:])

    def begin(self, **wants: bytes | None) -> Transaction:
        """One transaction at the coordinator: `low` and `high` stand for the two lists."""
        names = {"low": self.low, "high": self.high}
        keyed = {names.get(name, name.encode()): item for name, item in wants.items()}
        return self.cluster.transactors.send(-1, self.coordinator, keyed)

    def ended(self, txn: Transaction) -> Outcome:
        """Its outcome, once its client knows."""
        self.wait(lambda: txn.outcome is not None, f"{txn} is answered")
        assert txn.outcome is not None
        return txn.outcome

    def wait(self, is_so: Callable[[], bool], what: str, ms: int = 30_000) -> None:
        """Let time pass until something is so, looking every millisecond."""
        end_us = self.world.time_us + ms * MS
        while not is_so():
            if self.world.time_us >= end_us:
                story = "\n".join(self.world.lines[-60:])
                raise AssertionError(f"not within {ms} ms: {what}\n{story}")
            self.world.run_until(self.world.time_us + MS)

    def run(self, ms: int) -> None:
        """Let time pass."""
        self.world.run_until(self.world.time_us + ms * MS)

    def rest(self) -> None:
        """Until the cluster is quiet, with no lock left, and everything explained."""
        end_us = self.world.time_us + 60_000 * MS
        assert self.world.run_until(end_us, lambda: not self.cluster.rest()), self.cluster.rest()
        self.cluster.transactors.check()

    def when(self, kind: type[TransactionMessage], do: Callable[[], None]) -> None:
        """Do something when the first message of a kind is sent."""
        done: list[bool] = []

        def said(node: str, to: str, message: TransactionMessage) -> None:
            if isinstance(message, kind) and not done:
                done.append(True)
                self.world.after(0, do)

        self.on_said = said

    def count(self, kind: type[TransactionMessage]) -> int:
        """How many messages of a kind were sent from one agent to another."""
        return sum(isinstance(message, kind) for _, _, message in self.said)

    def hand_in(self, key: bytes, message: TransactionMessage) -> None:
        """The key's primary hears a message of the coordinator's, once more."""
        agent, name = self.primary_of(key), self.coordinator.name
        agent.run(lambda: agent.core.receive(name, message, agent.now()))

    def zone(self, agent: AgentProcess) -> Replicas:
        """The zone's copies at an agent."""
        return agent.core.zones[ZONE]

    def outcomes(self) -> list[Outcome]:
        """What agents answer from now on."""
        found: list[Outcome] = []
        self.cluster.transactors.on_ended = lambda ended: found.append(ended.outcome)
        return found

    def _pairs(self, name: str) -> list[tuple[str, str]]:
        others = [*self.cluster.agents, *(master.name for master in self.cluster.masters)]
        pairs = [(name, other) for other in others if other != name]
        return pairs + [(other, one) for one, other in pairs]

    def cut_off(self, name: str) -> None:
        """Nothing passes between the agent and anybody."""
        for pair in self._pairs(name):
            self.cluster.network.cut(*pair)

    def heal(self, name: str) -> None:
        """Everything passes again."""
        for pair in self._pairs(name):
            self.cluster.network.heal(*pair)

    def kill(self, agent: AgentProcess) -> None:
        """End a process at once; it is started again after a while."""
        self.cluster.stop_agent(agent.name, machine_too=False, refused=True)
        self.world.after(1500 * MS, lambda: self.cluster.start_agent(agent.name))
