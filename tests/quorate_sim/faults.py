"""What goes wrong, and when: drawn from the seed, ended for the liveness phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate_sim.agent_process import AgentProcess
from quorate_sim.cluster import Cluster
from quorate_sim.world import MS

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_MS = 50


class Faults:
    """The faults of one run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.over = False
        self._joins = cluster.swarm.joins
        self._cuts: list[tuple[str, str]] = []

    def start(self) -> None:
        """Faults begin after a while of quiet."""
        self.world.after(800 * MS, self._step)

    def _often(self, rate: float) -> bool:
        return self.world.chance(rate * STEP_MS / 1000)

    def _step(self) -> None:
        if self.over:
            return
        self.world.after(STEP_MS * MS, self._step)
        swarm, r = self.cluster.swarm, self.world.random
        if self._often(swarm.crashes):
            self._crash(wipe=False)
        if self._often(swarm.wipes):
            self._crash(wipe=True)
        if self._often(swarm.freezes):
            self._freeze()
        if self._often(swarm.cuts):
            self._cut()
        if self._often(swarm.breaks) and self.cluster.network.links:
            self.cluster.network.lose(r.choice(self.cluster.network.links))
        if self._often(swarm.disk_full):
            self._fill_disk()
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

    def _pick(self) -> AgentProcess | None:
        living = self.cluster.living()
        return self.world.random.choice(living) if living else None

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self.world.after(self.world.random.randrange(low_ms, high_ms) * MS, action)

    def _crash(self, wipe: bool) -> None:
        agent = self._pick()
        if agent is None:
            return
        if (wipe or self.cluster.swarm.in_memory) and not self.cluster.may_lose_store(agent.name):
            return
        r = self.world.random
        self.cluster.stop_agent(agent.name, machine_too=r.random() < 0.5, refused=r.random() < 0.5)
        if wipe:
            self.cluster.wipe(agent.name)
        self._later(5, r.choice((20, 500, 5000)), lambda: self._restart(agent.name))

    def _restart(self, name: str) -> None:
        if not self.cluster.agents[name].alive:
            self.cluster.start_agent(name)

    def _freeze(self) -> None:
        agent = self._pick()
        if agent is not None and not agent.frozen:
            self.world.trace(agent.label, "freezes")
            agent.freeze()
            self._later(100, self.world.random.choice((400, 1500, 5000)), lambda: self._thaw(agent))

    def _thaw(self, agent: AgentProcess) -> None:
        if agent.alive and agent.frozen:
            self.world.trace(agent.label, "goes on")
            agent.thaw()

    def _cut(self) -> None:
        names = [agent.name for agent in self.cluster.living()]
        names += [master.name for master in self.cluster.masters if master.alive]
        if len(names) < 2:
            return
        r = self.world.random
        pairs: list[tuple[str, str]]
        style = r.choice(self.cluster.swarm.cut_styles)
        if style in ("one way", "pair"):
            source, target = r.sample(names, 2)
            pairs = (
                [(source, target)] if style == "one way" else [(source, target), (target, source)]
            )
        elif style == "nearly alone":
            # One agent still reaches one other: it may go on being granted leases by that one.
            one, friend = r.sample(names, 2)
            others = [name for name in names if name not in (one, friend)]
            pairs = [pair for other in others for pair in ((one, other), (other, one))]
        else:
            side = r.sample(names, 1 if style == "alone" else r.randrange(1, len(names)))
            pairs = [
                pair
                for one in side
                for other in names
                if other not in side
                for pair in ((one, other), (other, one))
            ]
        self.world.trace("network", f"cut {pairs}")
        for pair in pairs:
            self.cluster.network.cut(*pair)
        self._later(200, r.choice((800, 3000, 8000)), lambda: self._heal(pairs))

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        self.world.trace("network", f"healed {pairs}")
        for pair in pairs:
            self.cluster.network.heal(*pair)

    def _fill_disk(self) -> None:
        agent = self._pick()
        if agent is not None:
            for uid in sorted(agent.store.storages):
                self.world.trace(agent.label, "its disk is full for one batch")
                agent.store.storages[uid].refuse = True

    def _replace_master(self, second: bool) -> None:
        living = [master for master in self.cluster.masters if master.alive]
        for master in living:
            if second:
                self._later(500, 6000, master.die)
            else:
                self.world.trace(master.name, "dies")
                master.die()
        self._later(10, 3000, self._one_more_master)

    def _one_more_master(self) -> None:
        if not self.over:
            self.cluster.add_master()

    def _leave(self) -> None:
        agent = self._pick()
        if agent is None or agent.core.leaving or not agent.core.registered:
            return
        if self.cluster.swarm.in_memory and not self.cluster.may_lose_store(agent.name):
            return
        self.world.trace(agent.label, "asks to leave")
        agent.run(lambda: agent.core.leave(agent.now()))

        def stop() -> None:
            if agent.alive and self.cluster.agents[agent.name] is agent:
                if self.cluster.swarm.in_memory and not self.cluster.may_lose_store(agent.name):
                    return
                self.cluster.stop_agent(agent.name, machine_too=False, refused=True)
                self._later(50, 2000, lambda: self._restart(agent.name))

        self._later(500, 3000, stop)

    def _drain(self) -> None:
        """Everything is to move off one agent, for a while."""
        living = [master for master in self.cluster.masters if master.alive]
        if not living:
            return
        process, name = living[-1], self.world.random.choice(list(self.cluster.disks))

        def drain(draining: bool) -> None:
            if process.master is not None:
                refused = process.master.drain(name, draining, process.now())
                self.world.trace(process.name, f"drains {name}: {draining}; {refused}")

        process.run(lambda: drain(True))
        self._later(500, 5000, lambda: process.run(lambda: drain(False)))

    def end(self) -> None:
        """No faults any more: one master, every agent runs, everything gets through."""
        self.over = True
        cluster = self.cluster
        self.world.trace("faults", "are over")
        cluster.network.calm()
        cluster.metastore.trouble = 0.0
        cluster.lost_answers = 0.0
        for agent in cluster.living():
            for uid in sorted(agent.store.storages):
                agent.store.storages[uid].refuse = False
            if agent.frozen:
                agent.thaw()
        for name in list(cluster.disks):
            if not cluster.agents[name].alive:
                cluster.start_agent(name)
        for master in cluster.masters:
            if master.alive:
                master.die()
        self._last_master()

    def _last_master(self) -> None:
        """It loads what will stay: late writes of its predecessors are through by then."""
        if self.cluster.metastore.in_flight:
            self.world.after(100 * MS, self._last_master)
        else:
            self.cluster.add_master()


def run_seed(seed: int, trace: bool = False) -> Cluster:
    """Run one seed to its end; an InvariantError tells what did not hold."""
    cluster = Cluster(seed, trace)
    faults = Faults(cluster)
    cluster.clients.start()
    faults.start()
    try:
        cluster.world.run_until(cluster.swarm.safety_ms * MS)
        faults.end()
        cluster.world.run_until(cluster.world.time_us + 300 * MS)
        cluster.finish()
    except Exception as error:
        error.add_note(f"seed {seed} at {cluster.world.time_ms} ms: {cluster.swarm}")
        error.__dict__["cluster"] = cluster
        raise
    return cluster
