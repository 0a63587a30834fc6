"""A cluster without chance faults, for stories told step by step."""

from collections.abc import Callable

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import NEVER_MS, ConsistencyMode, StorageKind, SyncWrites, WriteMode
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate.protocol.settings import ProtocolSettings
from quorate_sim.agent_process import AgentProcess
from quorate_sim.clients import Op
from quorate_sim.cluster import Cluster
from quorate_sim.swarm import Swarm, zone_record
from quorate_sim.world import MS

SETTINGS = ProtocolSettings(
    lease_ms=1000,
    lease_margin_ms=60,
    heartbeat_ms=200,
    retry_ms=150,
    repair_ms=150,
    announce_ms=200,
    failure_detection_ms=800,
    refusal_delay_ms=500,
    migration_bound_ms=4000,
    activation_bound_ms=1200,
    reset_question_ms=400,
    transfer_chunk_bytes=1000,
)


def quiet(
    agents: int = 3,
    replicas: int = 3,
    in_memory: bool = False,
    settings: ProtocolSettings = SETTINGS,
    sync_writes: SyncWrites = SyncWrites.ALWAYS,
    reset_ms: int = NEVER_MS,
    write_mode: WriteMode = WriteMode.FULL_SYNC,
    isolation_ms: int = NEVER_MS,
) -> Swarm:
    """One partition, no faults, quick links and disks; with `reset_ms` in HIGH_AVAILABILITY."""
    storage = StorageKind.IN_MEMORY if in_memory else StorageKind.PERSISTENT
    zone = zone_record("zone", 1, replicas, storage, sync_writes)
    if reset_ms < NEVER_MS:
        mode = ConsistencyMode.HIGH_AVAILABILITY
        zone = msgspec.structs.replace(
            zone, mode=mode, reset_ms=reset_ms, write_mode=write_mode, isolation_ms=isolation_ms
        )
    return Swarm(agents=agents, zones=(zone,), settings=settings)


class Scenario:
    """A cluster of one zone with one partition, and words to tell a story with."""

    def __init__(
        self,
        agents: int = 3,
        replicas: int = 3,
        in_memory: bool = False,
        settings: ProtocolSettings = SETTINGS,
        sync_writes: SyncWrites = SyncWrites.ALWAYS,
        reset_ms: int = NEVER_MS,
        write_mode: WriteMode = WriteMode.FULL_SYNC,
        isolation_ms: int = NEVER_MS,
    ) -> None:
        swarm = quiet(
            agents, replicas, in_memory, settings, sync_writes, reset_ms, write_mode, isolation_ms
        )
        self.cluster = Cluster(1, trace=True, swarm=swarm)
        self.world = self.cluster.world
        self.cluster.lost_answers = 0.0
        self.wait(lambda: not self.cluster.rest(), "the zone is placed and serves")

    def run(self, ms: int) -> None:
        """Let time pass."""
        self.world.run_until(self.world.time_us + ms * MS)

    def wait(
        self, is_so: Callable[[], bool], what: str, ms: int = 20_000, step_ms: int = 5
    ) -> None:
        """Let time pass until something is so."""
        end_us = self.world.time_us + ms * MS
        while not is_so():
            if self.world.time_us >= end_us:
                story = "\n".join(self.world.lines[-60:])
                raise AssertionError(f"not within {ms} ms: {what}\n{story}")
            self.world.run_until(self.world.time_us + step_ms * MS)

    @property
    def row(self) -> PartitionRow:
        """The committed row."""
        row = self.cluster.committed_row("zone", 0)
        assert row is not None
        return row

    @property
    def sentence(self) -> str:
        """The zone's state in the words of the newest master."""
        process = self.cluster.newest_master()
        assert process is not None
        assert process.master is not None
        return process.master.status().zones[0].sentence

    def agent(self, name: str) -> AgentProcess:
        """The living process of that name."""
        return self.cluster.agents[name]

    def zone(self, name: str) -> Replicas:
        """What the agent has of the zone."""
        return self.agent(name).core.zones["zone"]

    def is_online(self, name: str) -> bool:
        """Whether the newest master takes the agent for online."""
        process = self.cluster.newest_master()
        assert process is not None
        assert process.master is not None
        return process.master.agents[name].online

    def copy(self, name: str) -> Copy:
        """The agent's copy of the partition."""
        return self.zone(name).copies[0]

    def role(self, name: str) -> Primary | None:
        """The agent's role as primary."""
        zone = self.agent(name).core.zones.get("zone")
        return zone.primaries[0] if zone is not None else None

    def serves(self, name: str) -> bool:
        """Whether the agent takes commands."""
        agent, role = self.agent(name), self.role(name)
        return agent.alive and role is not None and role.serves(agent.now().boot_ms)

    @property
    def primary(self) -> str:
        """Who serves; empty when nobody does."""
        return next(filter(self.serves, self.cluster.agents), "")

    def wait_for_primary(self, *others: str) -> str:
        """Until an agent serves that is none of `others`; its name."""
        self.wait(
            lambda: any(self.serves(n) for n in self.cluster.agents if n not in others),
            f"somebody other than {others} serves",
        )
        return next(n for n in self.cluster.agents if n not in others and self.serves(n))

    def backups(self) -> list[str]:
        """The other owners, hottest first."""
        return [node for node in self.row.replicas[1:] if node is not None]

    def write(self, name: str, key: bytes, value: bytes) -> Op:
        """SET at this agent; not yet answered."""
        return self.cluster.clients.send_to(self.agent(name), "set", key, value)

    def written(self, name: str, key: bytes, value: bytes) -> Op:
        """SET at this agent, answered."""
        op = self.write(name, key, value)
        self.wait(lambda: op.outcome == "ok", f"{op} is answered")
        return op

    def deleted(self, name: str, key: bytes) -> None:
        """DEL at this agent, answered."""
        op = self.cluster.clients.send_to(self.agent(name), "del", key)
        self.wait(lambda: op.outcome == "ok", f"{op} is answered")

    def read(self, name: str, key: bytes) -> bytes | None:
        """GET at this agent, answered; by another where that is primary meanwhile."""
        op = self.cluster.clients.send_to(self.agent(name), "get", key)
        self.wait(lambda: op.outcome in ("ok", "elsewhere"), f"{op} is answered")
        return op.result if op.outcome == "ok" else self.read(self.wait_for_primary(), key)

    def cut(self, *names: str, off: tuple[str, ...] | None = None) -> None:
        """Nothing passes between `names` and `off` (None: everybody else, masters too)."""
        everybody = [*self.cluster.agents, *(m.name for m in self.cluster.masters if m.alive)]
        for other in off if off is not None else everybody:
            for name in names:
                if other not in names:
                    self.cluster.network.cut(name, other)
                    self.cluster.network.cut(other, name)

    def heal(self) -> None:
        """Everything passes again."""
        for one in [*self.cluster.agents, *(m.name for m in self.cluster.masters)]:
            for other in [*self.cluster.agents, *(m.name for m in self.cluster.masters)]:
                self.cluster.network.heal(one, other)

    def crash(self, name: str, machine_too: bool = False) -> None:
        """Kill a process at once; its host refuses new connections."""
        self.cluster.stop_agent(name, machine_too, refused=True)

    def start(self, name: str) -> None:
        """Start it again."""
        self.cluster.start_agent(name)

    def add(self, name: str) -> None:
        """Another agent, which takes part."""
        self.cluster.add_agent(name)
        self.wait(lambda: "zone" in self.agent(name).core.zones, "the new agent takes part")

    def drain(self, name: str, draining: bool = True) -> None:
        """Its copies are to go elsewhere, or may come back."""
        process = self.cluster.masters[-1]
        core = process.master
        assert core is not None

        def drain() -> None:
            core.drain(name, draining, process.now())

        process.run(drain)

    def recover(
        self, action: RecoveryAction, node: str = "", erase: bool = False
    ) -> RecoveryAnswer:
        """A person decides about the partition, as its row is now."""
        process = self.cluster.masters[-1]
        core = process.master
        assert core is not None
        answers: list[RecoveryAnswer] = []
        asked = Recovery(action, {0: self.row.version}, node, erase, dry_run=False)
        self.cluster.checks.resets.decided.add(("zone", 0))
        process.run(lambda: answers.append(core.recover("zone", asked, process.now())))
        return answers[0]

    def set_reset_ms(self, reset_ms: int) -> None:
        """The zone is declared with another time until a reset."""
        process, zones = self.cluster.masters[-1], self.cluster.zones
        core = process.master
        assert core is not None
        zones["zone"] = msgspec.structs.replace(zones["zone"], reset_ms=reset_ms)
        process.run(lambda: core.set_zone(zones["zone"], process.now()))

    def come_to_rest(self) -> None:
        """Until every invariant of a quiet cluster holds; then the history must be explainable."""
        self.wait(lambda: not self.cluster.rest(), "the cluster comes to rest", 60_000)
        self.cluster.checks.check_history(self.cluster.clients.history)
