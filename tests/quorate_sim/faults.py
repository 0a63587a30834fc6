"""What goes wrong, and when: drawn from the seed, ended for the liveness phase."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from migration_words import Role
from quorate.protocol import metastore as metastore_module
from quorate.protocol.copies import copy
from quorate.protocol.master.decisions import decide
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.zone_master import zone_deletion, zone_master
from quorate.protocol.zone_master.recovery import rebuild_zone, reset, start_empty
from quorate_sim.agent_process import AgentProcess
from quorate_sim.changed import changed
from quorate_sim.cluster import Cluster
from quorate_sim.coverage import Reached
from quorate_sim.cuts import Cuts
from quorate_sim.master_process import MasterProcess
from quorate_sim.rare_faults import RareEvents
from quorate_sim.swarm import draw
from quorate_sim.world import MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEP_MS = 50
LEAVE_MS = 6000
"""Within this much an agent that said it leaves has ended, and is back."""
AIMED = (
    "crash",
    "freeze",
    "cut",
    *["cut together"] * 3,
    "one-way cut",
    "break",
    "wipe",
    "slow disk",
    "disk full",
)


class Faults:
    """The faults of one run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.over = False
        self.cuts = Cuts(cluster, lambda: self.over, self._restart_at_once)
        self._rare = RareEvents(
            cluster,
            lambda: self.over,
            lambda agent: self._crash(agent, wipe=False),
            self._one_more_master,
        )
        self._joins = cluster.swarm.joins
        self.ending: set[str] = set()
        """Who has said that it leaves, and is still to end and to come back."""

    def start(self) -> None:
        """Faults begin after a while of quiet."""
        self.world.after(800 * MS, self._step)
        if self.cluster.swarm.ambushes:
            self.cluster.coverage.on_moment = self._moment
            self.cluster.coverage.on_activation = self._activation

    def _often(self, rate: float) -> bool:
        return self.world.chance(rate * STEP_MS / 1000)

    def _step(self) -> None:
        if self.over:
            return
        self.world.after(STEP_MS * MS, self._step)
        swarm, r = self.cluster.swarm, self.world.random
        if self._often(swarm.crashes):
            self._crash(self._pick(), wipe=False)
        if self._often(swarm.wipes):
            self._crash(self._pick(), wipe=True)
        if self._often(swarm.freezes):
            self._freeze(self._pick())
        if self._often(swarm.cuts):
            self.cuts.anybody()
        if self._often(swarm.breaks) and self.cluster.network.links:
            self.cuts.break_link(r.choice(self.cluster.network.links))
        if self._often(swarm.disk_full):
            self._fill_disk(self._pick())
        if self._often(swarm.slow_disks):
            self._slow_disk(self._pick())
        if self._often(swarm.blackouts):
            self._blackout()
        if self._often(swarm.clock_jumps):
            self._jump_clock()
        if self._often(swarm.master_freezes):
            self._freeze_master()
        if self._often(swarm.master_crashes):
            self._replace_master(second=False)
        if self._often(swarm.second_masters):
            self._replace_master(second=True)
        if self._joins and self._often(0.4):
            self._joins -= 1
            self.cluster.add_agent(f"a{len(self.cluster.disks) + 1}")
        if self._often(swarm.leaves):
            self._leave()
        if self._often(swarm.drains):
            self._drain()
        self._rare.step(self._often)

    def _pick(self) -> AgentProcess | None:
        living = self.cluster.living()
        return self.world.random.choice(living) if living else None

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self.world.after(self.world.random.randrange(low_ms, high_ms) * MS, action)

    def _crash(self, agent: AgentProcess | None, wipe: bool) -> None:
        if agent is None:
            return
        cluster = self.cluster
        r = self.world.random
        machine = r.random() < 0.5
        if (wipe or cluster.swarm.in_memory) and not cluster.may_lose_store(agent.name):
            return
        if (machine or wipe) and cluster.swarm.interval and not cluster.may_lose_tail(agent.name):
            machine = False
            if wipe:
                return
        cluster.coverage.struck(
            "wipe" if wipe else "power loss" if machine else "crash", [agent.name]
        )
        cluster.stop_agent(agent.name, machine_too=machine, refused=r.random() < 0.5)
        if wipe:
            cluster.wipe(agent.name)
        self._later(5, r.choice((20, 500, 5000)), lambda: self._restart(agent.name))

    def _blackout(self) -> None:
        """Every machine, or most of them, loses power at once."""
        cluster, r = self.cluster, self.world.random
        if cluster.swarm.in_memory or cluster.swarm.interval:
            return
        living = cluster.living()
        struck = living if r.random() < 0.5 else r.sample(living, len(living) * 2 // 3)
        cluster.coverage.struck("blackout", [agent.name for agent in struck])
        for agent in struck:
            cluster.stop_agent(agent.name, machine_too=True, refused=False)
            self._later(50, 3000, partial(self._restart, agent.name))

    def _restart(self, name: str) -> None:
        if not self.cluster.agents[name].alive:
            self.cluster.start_agent(name)

    def _freeze(self, agent: AgentProcess | None) -> None:
        if agent is not None and not agent.frozen:
            self.cluster.coverage.struck("freeze", [agent.name])
            self.world.trace(agent.label, "freezes")
            agent.freeze()
            self._later(100, self.world.random.choice((400, 1500, 5000)), lambda: self._thaw(agent))

    def _freeze_master(self) -> None:
        master = self.cluster.newest_master()
        if master is None or master.frozen:
            return
        self.cluster.coverage.struck("freeze", [master.name])
        self.world.trace(master.name, "freezes")
        master.freeze()

        def thaw() -> None:
            self.world.trace(master.name, "goes on")
            master.thaw()

        self._later(200, self.world.random.choice((1500, 6000)), thaw)

    def _jump_clock(self) -> None:
        """Somebody sets a wall clock, by up to ten minutes either way."""
        name = self.world.random.choice(list(self.cluster.clocks))
        self.cluster.coverage.struck("clock jump", [name])
        self.cluster.clocks[name].jump(self.world.random.randrange(-600_000, 600_000))

    def _slow_disk(self, agent: AgentProcess | None) -> None:
        if agent is None or agent.disk.slow:
            return
        self.cluster.coverage.struck("slow disk", [agent.name])
        self.world.trace(agent.label, "its disk is slow")
        disk = agent.disk
        disk.slow = True

        def recover() -> None:
            disk.slow = False

        self._later(300, 4000, recover)

    def _thaw(self, agent: AgentProcess) -> None:
        if agent.alive and agent.frozen:
            self.world.trace(agent.label, "goes on")
            agent.thaw()

    def _restart_at_once(self, name: str) -> None:
        """A process is back before anybody misses it: it has forgotten what it granted."""
        agent = self.cluster.agent_at(name)
        if agent is None or self.over or self.cluster.swarm.in_memory:
            return
        self.cluster.coverage.struck("crash", [name])
        refused = self.world.chance(0.5)
        self.cluster.stop_agent(name, machine_too=False, refused=refused)
        self._later(2, 20, lambda: self._restart(name))

    def _fill_disk(self, agent: AgentProcess | None) -> None:
        if agent is not None:
            self.cluster.coverage.struck("disk full", [agent.name])
            for uid in sorted(agent.store.storages):
                self.world.trace(agent.label, "its disk is full for one batch")
                agent.store.storages[uid].refuse = True

    def _replace_master(self, second: bool) -> None:
        living = [master for master in self.cluster.masters if master.alive]
        self.cluster.coverage.struck(
            "second master" if second else "crash", [master.name for master in living]
        )
        for master in living:
            if second:
                self._goes_on(master)
                self._later(500, 6000, master.die)
            else:
                self.world.trace(master.name, "dies")
                master.die()
        self._later(10, 3000, self._one_more_master)

    def _goes_on(self, former: MasterProcess) -> None:
        """What a master lives through that does not know that it is followed by another."""
        metastore = self.cluster.metastore
        match self.world.random.choice(("", "", "agents", "metastore")):
            case "agents":
                names = [agent.name for agent in self.cluster.living()]
                self.cuts.pairs([p for n in names for p in ((n, former.name), (former.name, n))])
            case "metastore":
                self.world.trace(former.name, "does not reach the metastore")
                metastore.cut(former.name)
                self._later(300, 3000, lambda: metastore.heal(former.name))
            case _:
                pass

    def _one_more_master(self) -> None:
        if not self.over:
            self.cluster.add_master()

    def _leave(self) -> None:
        agent = self._pick()
        if agent is None or agent.core.leaving or not agent.core.registered:
            return
        if self.cluster.swarm.in_memory and not self.cluster.may_lose_store(agent.name):
            return
        self.cluster.coverage.struck("leave", [agent.name])
        self.world.trace(agent.label, "asks to leave")
        agent.run(lambda: agent.core.leave(agent.now()))

        self.ending.add(agent.label)

        def stop() -> None:
            cluster, name = self.cluster, agent.name
            is_there = agent.alive and cluster.agents[name] is agent
            if is_there and (not cluster.swarm.in_memory or cluster.may_lose_store(name)):
                cluster.stop_agent(name, machine_too=False, refused=True)
                self._later(50, 2000, come_back)
            else:
                self.ending.discard(agent.label)

        def come_back() -> None:
            self.ending.discard(agent.label)
            self._restart(agent.name)

        self._later(500, 3000, stop)

    def _drain(self) -> None:
        """Everything is to move off one agent, for a while."""
        living = [master for master in self.cluster.masters if master.alive]
        if not living:
            return
        process, name = living[-1], self.world.random.choice(list(self.cluster.disks))
        self.cluster.coverage.struck("drain", [name])

        def drain(draining: bool) -> None:
            if process.master is not None:
                refused = process.master.drain(name, draining, process.now())
                self.world.trace(process.name, f"drains {name}: {draining}; {refused}")

        process.run(lambda: drain(True))
        self._later(500, 5000, lambda: process.run(lambda: drain(False)))

    def end(self) -> None:
        """No faults any more: one master, every agent runs, everything gets through."""
        self.over = self.cluster.faults_are_over = True
        self._rare.end()
        cluster = self.cluster
        self.world.trace("faults", "are over")
        cluster.network.calm()
        cluster.metastore.trouble = 0.0
        cluster.lost_answers = 0.0
        for disk in cluster.disks.values():
            disk.slow = False
        for agent in cluster.living():
            for uid in sorted(agent.store.storages):
                agent.store.storages[uid].refuse = False
            if agent.frozen:
                agent.thaw()
        for name in list(cluster.disks):
            if not cluster.agents[name].alive:
                cluster.start_agent(name)
        for master in cluster.masters:
            if master.alive and cluster.swarm.second_masters:
                # It goes on for a while beside the last one, and so do writes of those before.
                master.thaw()
                self._later(0, 3000, master.die)
            else:
                master.die()
        cluster.add_master()
        self._undrain()

    def _undrain(self) -> None:
        """Nobody is to be drained any more; what an earlier master was told outlives it."""
        master = self.cluster.masters[-1]
        if master.master is None:
            self.world.after(20 * MS, self._undrain)
            return
        core = master.master

        def undrain() -> None:
            for name in self.cluster.disks:
                core.drain(name, False, master.now())

        master.run(undrain)

    # --- aimed faults ----------------------------------------------------------------------------

    def _moment(self, reached: Reached) -> None:
        """A migration has come to a moment: that is when to strike somebody who takes part."""
        if self.over or not self.world.chance(self.cluster.swarm.ambushes):
            return
        r = self.world.random
        role, fault = r.choice(tuple(Role)), r.choice(AIMED)
        delay = r.choice((0, 0, 1000, 5000, 30_000))
        self.world.after(delay, lambda: self._strike(reached, role, fault))

    def _strike(self, reached: Reached, role: Role, fault: str) -> None:
        if self.over:
            return
        self.world.trace("faults", f"{fault} of the {role} at: {reached.moment}")
        if role is Role.MASTER:
            self._strike_master(fault)
            return
        names = reached.running.nodes(role)
        if fault == "cut together":
            # Most of all with who leaves: the two may think that they are still a majority.
            side = reached.running.nodes(Role.SOURCE) or names
            self.cuts.off([*side, *reached.running.nodes(Role.PRIMARY)])
            return
        agent = self.cluster.agent_at(self.world.random.choice(names)) if names else None
        if agent is None:
            return
        match fault:
            case "crash" | "wipe":
                self._crash(agent, fault == "wipe")
            case "freeze":
                self._freeze(agent)
            case "slow disk":
                self._slow_disk(agent)
            case "disk full":
                self._fill_disk(agent)
            case _:
                self.cuts.isolate(agent.name, fault)

    def _activation(self, agent: AgentProcess) -> None:
        """A voter has promised, a new primary stored its lineage, or serves: strike there too."""
        if self.over or not self.world.chance(self.cluster.swarm.ambushes):
            return
        r = self.world.random
        delay = r.choice((0, 1000, 5000, 30_000, 200_000))
        fault = r.choice(("crash", "crash", "cut", "one-way cut", "slow disk"))

        def strike() -> None:
            if self.over or not agent.alive:
                return
            self.world.trace("faults", f"{fault} of {agent.label} in an activation")
            match fault:
                case "crash":
                    self._crash(agent, wipe=False)
                case "slow disk":
                    self._slow_disk(agent)
                case _:
                    self.cuts.isolate(agent.name, fault)

        self.world.after(delay, strike)

    def _strike_master(self, fault: str) -> None:
        master = self.cluster.newest_master()
        if master is None:
            return
        match fault:
            case "crash":
                self._replace_master(second=False)
            case "wipe":
                self._replace_master(second=True)
            case "freeze":
                self._freeze_master()
            case "cut" | "one-way cut" | "break":
                self.cuts.isolate(master.name, fault)
            case _:
                pass  # it has no disk


@contextmanager
def shards_of(partitions: int) -> Iterator[None]:
    """Rows per stored object: smaller than the product's, so that few partitions make many."""
    recoveries = (rebuild_zone, reset, start_empty, decide)
    modules = (zone_master, zone_deletion, metastore_module, *recoveries)
    for module in modules:
        setattr(module, "SHARD_PARTITIONS", partitions)  # noqa: B010  mypy knows no such name
    try:
        yield
    finally:
        for module in modules:
            setattr(module, "SHARD_PARTITIONS", SHARD_PARTITIONS)  # noqa: B010  mypy knows no such name


LOG_READ_BYTES = 1
"""Copies read the updates of one counter after the other, as with long values."""


def replay_command(seed: int) -> str:
    """What to type to see what happened in a seed."""
    return f"PYTHONPATH=core:operator:tests .venv/bin/python -m quorate_sim {seed} --trace"


def run_seed(seed: int, trace: bool = False) -> Cluster:
    """Run one seed to its end; an InvariantError tells what did not hold."""
    swarm = draw(seed)
    with shards_of(swarm.shard_partitions), changed(copy, "LOG_READ_BYTES", LOG_READ_BYTES):
        return _run(Cluster(seed, trace, swarm))


def _run(cluster: Cluster) -> Cluster:
    faults = Faults(cluster)
    cluster.clients.start()
    cluster.transactors.start()
    faults.start()
    try:
        cluster.world.run_until(cluster.swarm.safety_ms * MS)
        faults.end()
        cluster.world.run_until(cluster.world.time_us + 300 * MS)
        # Their memory is lost in the last moment: what follows is judged as if all were well.
        cluster.world.run_until(cluster.world.time_us + LEAVE_MS * MS, lambda: not faults.ending)
        cluster.finish()
    except Exception as error:
        error.add_note(f"seed {cluster.world.seed} at {cluster.world.time_ms} ms: {cluster.swarm}")
        error.add_note(f"replay: {replay_command(cluster.world.seed)}")
        error.__dict__["cluster"] = cluster
        raise
    return cluster
