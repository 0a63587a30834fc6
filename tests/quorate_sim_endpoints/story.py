"""One run: clients, faults, hand-overs, full agents; what clients were told must fit together."""

from collections import defaultdict
from functools import partial
from random import Random

import msgspec

from quorate_sim.faults import Faults, shards_of
from quorate_sim.linearizability import Call, TooHard, check_key
from quorate_sim.rare_faults import NONE
from quorate_sim.swarm import Swarm, draw, zone_record
from quorate_sim.world import MS
from quorate_sim_endpoints.client import Client
from quorate_sim_endpoints.endpoint_process import EndpointCluster

STEPS_MAX = 300_000
"""Of the search for an order: a history that takes more is not judged."""


def draw_story(seed: int) -> Swarm:
    """A seed's cluster and faults: hand-overs and broken links above all.

    Links lose, but neither repeat nor overtake, as TCP; wall clocks stay as they are."""
    drawn, random = draw(seed), Random(seed)
    first = drawn.zones[0]
    zone = zone_record(
        "zone",
        random.choice((1, 1, 2)),
        max(2, min(3, first.replicas)),
        first.storage,
        first.sync_writes,
    )
    return msgspec.structs.replace(
        drawn,
        zones=(zone,),
        agents=max(drawn.agents, 3),
        **dict.fromkeys(("clients", "transactors"), 0),
        **dict.fromkeys(("flushes", "bursts", "clock_jumps", "duplicates"), 0.0),
        harsh=False,
        rare=NONE,
        leaves=max(drawn.leaves, 0.2),
        drains=max(drawn.drains, 0.5),
        breaks=random.choice((1.0, 4.0, 8.0)),
        wipes=min(drawn.wipes, 0.1),
        disk_full=min(drawn.disk_full, 0.5),
    )


class Story:
    """One seed."""

    def __init__(self, seed: int, trace: bool = False, holds: float = 0.0) -> None:
        self.random = Random(seed * 7 + 1)
        swarm = draw_story(seed)
        if holds:
            swarm = msgspec.structs.replace(swarm, breaks=0.0, drains=0.7, safety_ms=15_000)
        self.cluster = EndpointCluster(seed, trace, swarm)
        self.cluster.holds = holds
        # What an agent has not sent yet they overtake, what a network holds they do not.
        self.cluster.network.heartbeats_first = not holds and seed % 4 == 0
        self.keys = self.random.choice((1, 2, 3))
        self.histories: dict[bytes, list[Call]] = defaultdict(list)
        self.is_over = False
        self._values = 0
        self._clients = [Client(self, n) for n in range(self.random.choice((4, 8)))]

    def new_value(self) -> bytes:
        """One that nobody else writes."""
        self._values += 1
        return b"v%d." % self._values

    def play(self) -> int:
        """How many commands there were.  AssertionError: one was told what cannot be."""
        world, faults = self.cluster.world, Faults(self.cluster)
        faults.start()
        self._tick()
        self._fill()
        for number, client in enumerate(self._clients):
            world.after((700 + 3 * number) * MS, client.step)
        world.run_until(self.cluster.swarm.safety_ms * MS)
        faults.end()
        world.run_until(world.time_us + 500 * MS)
        self.is_over = True
        self.cluster.full.clear()
        world.run_until(
            world.time_us + 40_000 * MS,
            lambda: not any(client.command for client in self._clients),
        )
        left = [client.command for client in self._clients if client.command]
        assert not left, f"not answered: {left}"
        for calls in self.histories.values():
            self._judge(calls)
        return sum(map(len, self.histories.values()))

    def _judge(self, calls: list[Call]) -> None:
        try:
            wrong = check_key(calls, bound=STEPS_MAX)
        except TooHard:
            return
        told = "\n  ".join(call.name for call in sorted(calls, key=lambda call: call.start))
        assert not wrong, f"no order explains {wrong[0].name}:\n  {told}"

    def _tick(self) -> None:
        """Agents on which commands are parked look at them often."""
        for agent in self.cluster.processes():
            if not agent.frozen and agent.has_waiting:
                agent.run(partial(agent.core.tick, agent.now()))
        self.cluster.world.after(10 * MS, self._tick)

    def _fill(self) -> None:
        """Some agent says from now on that nothing may grow, or no longer."""
        full = self.cluster.full
        if not self.is_over and self.random.random() < 0.1:
            name = self.random.choice(list(self.cluster.agents))
            if full and self.random.random() < 0.7:
                full.pop(name, None)
            else:
                full[name] = None
        self.cluster.world.after(100 * MS, self._fill)


def play(seed: int, holds: float = 0.0, trace: bool = False) -> int:
    """Run one seed; how many commands there were.  `holds`: how probable it is that the network
    holds a forwarded command back for seconds.  `trace` prints all that happened."""
    with shards_of(64):
        story = Story(seed, trace, holds)
        try:
            return story.play()
        except Exception as error:
            error.add_note(f"replay: {replay_command(seed, holds)}")
            raise
        finally:
            if trace:
                print("\n".join(story.cluster.world.lines))


def replay_command(seed: int, holds: float) -> str:
    """What to type to see what happened in a seed."""
    python = "PYTHONPATH=core:operator:node_agent:tests .venv/bin/python"
    return f"{python} -m quorate_sim_endpoints {seed} --holds {holds:g} --trace"
