"""One run: a cluster is built, faults happen, they end, and everything must come to rest."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.keyspace import key_partition
from quorate.facts.partition_row import PartitionRow, majority
from quorate.facts.topology import Voter
from quorate.facts.zone import SyncWrites, ZoneRecord
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import ShardKey
from quorate_sim.agent_process import AgentProcess, Clock
from quorate_sim.checks import Checks
from quorate_sim.clients import Clients, Op
from quorate_sim.coverage import Coverage
from quorate_sim.disk import Disk
from quorate_sim.master_process import MasterProcess
from quorate_sim.metastore import SimMetastore
from quorate_sim.network import Network
from quorate_sim.placements import Placement
from quorate_sim.swarm import Swarm, draw
from quorate_sim.trace_text import message_text
from quorate_sim.transactors import Transactors
from quorate_sim.world import MS, World

REST_MS = 90_000
"""Within this much simulated time after the last fault everything must be at rest."""


SHOWN_US = 200 * MS
"""So long after its end a process is shown as ended."""

STUCK_MS = 20_000
"""Within this much a primary that reaches nobody must be followed by another."""


class Cluster:
    """Everything of one run."""

    agent_process: ClassVar[type[AgentProcess]] = AgentProcess

    def __init__(self, seed: int, trace: bool = False, swarm: Swarm | None = None) -> None:
        self.world = World(seed, trace)
        self.swarm = swarm if swarm is not None else draw(seed)
        self.coverage = Coverage(self)
        self.checks = Checks(self)
        self.network = Network(self.world, self.swarm)
        self.metastore = SimMetastore(self.world, self.checks, self.swarm.metastore_trouble)
        self.clients = Clients(self)
        self.transactors = Transactors(self)
        self.lost_answers = 0.02
        self.faults_are_over = False
        self.zones = {
            record.uid: msgspec.structs.replace(
                record, scale_down_ms=self.swarm.settings.refusal_delay_ms
            )
            for record in self.swarm.zones
        }
        self.disks: dict[str, Disk] = {}
        self.clocks: dict[str, Clock] = {}
        self.agents: dict[str, AgentProcess] = {}
        self.ended: dict[str, list[str]] = {}
        """Words of processes that have ended, by agent, in seeds where that is shown."""
        self.masters: list[MasterProcess] = []
        self._stores = 0
        self._master_count = 0
        for number in range(self.swarm.agents):
            self.add_agent(f"a{number + 1}")
        self.add_master()

    # --- who there is ----------------------------------------------------------------------------

    def declared_zones(self) -> list[ZoneRecord]:
        """What a user declared."""
        return list(self.zones.values())

    def addresses(self) -> list[str]:
        """Where agents may be found."""
        return list(self.disks)

    def agent_at(self, name: str) -> AgentProcess | None:
        """The living process there."""
        agent = self.agents.get(name)
        return agent if agent is not None and agent.alive else None

    def living(self) -> list[AgentProcess]:
        """All living agents."""
        return [agent for agent in self.agents.values() if agent.alive]

    def add_agent(self, name: str) -> None:
        """A new machine with an empty disk."""
        self.disks[name] = self._new_disk()
        self.clocks[name] = self._new_clock()
        self.start_agent(name)

    def _new_disk(self) -> Disk:
        self._stores += 1
        return Disk(f"s{self._stores}")

    def _new_clock(self) -> Clock:
        r = self.world.random
        rate = 1 + r.uniform(-self.swarm.drift, self.swarm.drift)
        # A clock that starts now shows its base now.
        passed = int(self.world.time_us * rate) // MS
        boot = r.randrange(1000, 100_000) - passed
        wall = 1_700_000_000_000 + r.randrange(-5000, 5000)
        return Clock(rate, boot, wall)

    def placement(self, name: str) -> Placement:
        """Failure domain and weight of the agent of that name (a1, a2, …)."""
        at = int(name.removeprefix("a")) - 1 if self.swarm.placements else 0
        return self.swarm.placements[at] if self.swarm.placements else Placement()

    def newest_master(self) -> MasterProcess | None:
        """The living master of the highest term."""
        living = [master for master in self.masters if master.alive]
        return living[-1] if living else None

    def start_agent(self, name: str) -> None:
        """Start the process of this machine."""
        disk, clock = self.disks[name], self.clocks[name]
        agent = self.agents[name] = self.agent_process(self, name, disk, clock)
        self.world.trace(agent.label, f"starts with store {agent.disk.store}")

    def stop_agent(self, name: str, machine_too: bool, refused: bool) -> None:
        """Kill the process, or its machine with it."""
        agent = self.agents[name]
        self.world.trace(agent.label, "its machine dies" if machine_too else "dies")
        agent.die(machine_too)
        if self.swarm.ends_shown:
            self.world.after(SHOWN_US, lambda: self.ended.setdefault(name, []).append(agent.word))
        for link in [k for k in self.network.links if k.source is agent or k.target is agent]:
            late = self.world.random.choice((0, 0, 30, 300)) * MS
            gone = refused and link.target is agent
            self.world.after(late, partial(self.network.lose, link, gone))
        if machine_too:
            self.clocks[name] = self._new_clock()

    def wipe(self, name: str) -> None:
        """The machine's disk is replaced by an empty one (its process is dead)."""
        self.world.trace(name, "loses its disk")
        self.disks[name] = self._new_disk()

    def add_master(self, recovering: bool = False) -> MasterProcess:
        """One more holder of the mastership; `recovering`: over a metastore that was lost."""
        self._master_count += 1
        recovering = recovering or self.metastore.recovering
        master = MasterProcess(self, f"m{self._master_count}", self._new_clock(), recovering)
        self.masters.append(master)
        return master

    # --- questions -------------------------------------------------------------------------------

    def committed_row(self, uid: str, partition: int) -> PartitionRow | None:
        """What the metastore holds of one partition."""
        shard = partition // self.swarm.shard_partitions
        rows = self.metastore.value(ShardKey(uid, shard))
        if not isinstance(rows, tuple):
            return None
        return next((row for row in rows if row.partition == partition), None)

    def partition_of(self, op: Op) -> int:
        """Where the command's key lives."""
        return key_partition(op.key, self.zones[op.zone].partitions)

    def may_lose_store(self, name: str) -> bool:
        """Whether every voter set keeps so many stores without this agent's that each majority of
        it has one of them."""
        intact = self._intact() - self._stores_of(name)
        stored = self.metastore.stored()
        for uid, record in self.zones.items():
            if any(self.committed_row(uid, p) is None for p in range(record.partitions)):
                return False  # a first row, or a rebuilt one, may name a store that is gone by then
        values = [each.value for each in stored.values()]
        for rows in [*values, *self.metastore.in_flight]:
            if not isinstance(rows, tuple):
                continue
            for row in rows:
                if not _has_quorums(row, intact):
                    return False
        return True

    def may_lose_metastore(self) -> bool:
        """Whether each partition can get its row again: whichever row turns out to be the newest
        that was told has a quorum of stores that are there, before its migration and after it.
        Where it has not, the partition is not served, and a person decides; but for a migration
        of which the primary says by then that it has not frozen."""
        intact = self._intact()
        for uid, record in self.zones.items():
            for partition in range(record.partitions):
                if self.committed_row(uid, partition) is None:
                    return False
                rows = self.checks.rows_to_be_told(uid, partition, intact)
                if not rows or not all(_has_quorums(row, intact) for row in rows):
                    return False
        return True

    def are_gone(self, voters: Iterable[Voter]) -> bool:
        """Whether the stores of all of them are gone for good."""
        return self._intact().isdisjoint(voters)

    def _intact(self) -> set[Voter]:
        """Every store that is there, with what it holds."""
        return set().union(*(self._stores_of(name) for name in self.disks))

    def _stores_of(self, name: str) -> set[Voter]:
        """The agent's store; while its process runs, also that of its zones in memory."""
        agent, store = self.agents[name], self.disks[name].store
        stores = {Voter(name, store)}
        if agent.alive:
            stores.add(Voter(name, f"{store}.{agent.incarnation}"))
        return stores

    def may_lose_tail(self, name: str) -> bool:
        """Whether every other voter holds all that this machine would forget with its power, or
        lose with its disk; of a zone that it did not open nobody can tell."""
        agent, disk = self.agents[name], self.disks[name]
        for uid in sorted(disk.images.keys() | agent.core.zones.keys()):
            if self.zones[uid].sync_writes is SyncWrites.ALWAYS:
                continue
            zone = agent.core.zones.get(uid)
            if zone is None:
                return False
            for partition, copy in zone.copies.items():
                row = self.committed_row(uid, partition)
                if not copy.present:
                    continue
                if (
                    row is None
                    or row.active is not None
                    or self.metastore.in_flight
                    or len(row.voters) == 1
                ):
                    return False
                for node in row.voter_nodes:
                    other = self.agent_at(node)
                    held = other.core.zones.get(uid) if other is not None else None
                    theirs = held.copies.get(partition) if held is not None else None
                    if theirs is None or theirs.last_term != row.term or theirs.lwm < copy.hwm:
                        return False
        return True

    def role_of(self, agent: AgentProcess, uid: str, partition: int) -> Primary | None:
        """The agent's role as primary of a partition."""
        zone = agent.core.zones.get(uid)
        return zone.primaries[partition] if zone is not None else None

    def choose_agent(self, op: Op) -> AgentProcess | None:
        """Where a client sends its command: mostly to one that thinks it is the primary."""
        living = self.living()
        if not living:
            return None
        partition = self.partition_of(op)
        zones = [(agent, agent.core.zones.get(op.zone)) for agent in living]
        believers = [a for a, zone in zones if zone is not None and zone.primaries[partition]]
        return self.world.random.choice(believers or living)

    def tell(self, who: str, to: str, message: Message) -> None:
        """A line of the trace for a message."""
        text = message_text(message)
        if text:
            self.world.trace(who, f"→ {to}: {text}")

    # --- chance ----------------------------------------------------------------------------------

    def tick_us(self) -> int:
        """Until an agent's next tick."""
        return self.swarm.tick_ms * MS + self.world.below(MS)

    def turn_us(self) -> int:
        """How long an agent gathers work before it ends the turn."""
        return (0, 0, 100, 1000)[self.world.below(4)]

    def sync_us(self, agent: AgentProcess) -> int:
        """How long one sync takes."""
        if agent.disk.slow:
            return self.world.random.randrange(100, 1500) * MS
        return self.world.random.randrange(*self.swarm.sync_us)

    # --- the run ---------------------------------------------------------------------------------

    def rest(self) -> list[str]:
        """What is not yet at rest."""
        problems = self.checks.problems()
        if not problems and self.clients.open:
            problems = [f"I-10: not answered: {op} at {a.label}" for op, a in self.clients.open]
        return problems or self.transactors.left()

    def _come_to_rest(self) -> None:
        if not self.world.run_until(self.world.time_us + REST_MS * MS, lambda: not self.rest()):
            raise InvariantError("not at rest: " + "; ".join(self.rest()))

    def finish(self) -> None:
        """After the faults: everything comes to rest, and the history holds."""
        self.clients.stopped = self.transactors.stopped = True
        self._come_to_rest()
        reads = [
            self.clients.send(-1, uid, "get", b"%s%d" % (b"n" if n % 4 == 3 else b"s", n), 30_000)
            for uid in self.zones
            for n in range(self.swarm.keys)
        ]
        if not self.world.run_until(
            self.world.time_us + 30_000 * MS, lambda: all(op.outcome == "ok" for op in reads)
        ):
            raise InvariantError(f"a last read has no answer: {reads}")
        # Commands that were sent again after the rest may have happened as well.
        self.checks.check_history([*self.clients.history, *self.clients.in_flight])
        # Meanwhile another migration may have begun, and a list's primary have frozen for it.
        self._come_to_rest()
        self.transactors.check()
        if self.world.seed % 10 == 3:
            self.isolate_a_primary()
        if self.world.seed % 4 == 0:
            self.delete_zone("zone")

    def isolate_a_primary(self) -> None:
        """The master hears a primary that reaches no other agent: somebody else must serve."""
        row = self.committed_row("zone", 0)
        if row is None or row.primary is None or len(row.voters) < 3:
            return
        stuck = row.primary.node
        self.world.trace("network", f"{stuck} reaches no other agent")
        pairs = [(a, b) for a in self.disks for b in self.disks if (a == stuck) != (b == stuck)]
        for pair in pairs:
            self.network.cut(*pair)

        def is_served() -> bool:
            roles = [self.role_of(a, "zone", 0) for a in self.living() if a.name != stuck]
            return any(role is not None and role.serving_until > 0 for role in roles)

        if not self.world.run_until(self.world.time_us + STUCK_MS * MS, is_served):
            raise InvariantError(f"stuck: {stuck} reaches nobody, and nobody took over")
        for pair in pairs:
            self.network.heal(*pair)
        self._come_to_rest()

    def delete_zone(self, uid: str) -> None:
        """The user deletes a zone: nothing of it may stay anywhere (I-7)."""
        record = self.zones[uid] = msgspec.structs.replace(self.zones[uid], deleting=True)
        master = self.masters[-1]
        master.run(lambda: master.declare(record))
        if not self.world.run_until(
            self.world.time_us + REST_MS * MS, lambda: not self._left_of_zone(uid)
        ):
            raise InvariantError(f"I-7: left of a deleted zone: {self._left_of_zone(uid)}")

    def _left_of_zone(self, uid: str) -> list[str]:
        left = [f"{key}" for key in self.metastore.stored() if getattr(key, "uid", "") == uid]
        left += [f"files of {name}" for name, disk in self.disks.items() if uid in disk.images]
        left += [f"copies of {agent.label}" for agent in self.living() if uid in agent.core.zones]
        return left


def _has_quorums(row: PartitionRow, intact: set[Voter]) -> bool:
    """Whether so many stores of the row are there that every majority has one of them, before its
    migration and after it."""
    groups = [*row.voter_sets] + ([row.active.voters] if row.active is not None else [])
    return all(
        sum(voter in intact for voter in voters) > len(voters) - majority(len(voters))
        for voters in groups
    )
