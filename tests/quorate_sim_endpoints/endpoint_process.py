"""A simulated agent with a client endpoint, which believes in the simulated machine's clocks."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from quorate.facts.time import Now
from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.message import Message
from quorate_agent.metrics import AgentMetrics
from quorate_sim.agent_process import AgentProcess
from quorate_sim.cluster import Cluster
from quorate_sim.network import Link
from quorate_sim.world import MS
from quorate_sim_endpoints.watched_forwards import WatchedEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate.protocol.agent.replicas import Replicas
    from quorate_agent.commands.endpoint import ZoneEndpoint


class SimulatedClock:
    """The clocks of a simulated machine, as endpoints read them.

    How long commands take is no part of the simulation: measured time stands still."""

    def __init__(self, process: AgentProcess) -> None:
        self.now: Callable[[], Now] = process.now
        self.started_ms = self.boot_ms()

    def wall_ms(self) -> int:
        return self.now().wall_ms

    def wall_us(self) -> int:
        return self.now().wall_ms * 1000

    def boot_ms(self) -> int:
        return self.now().boot_ms

    def passed_s(self) -> float:
        return 0.0

    def cpu_s(self) -> float:
        return 0.0

    def thread_cpu_s(self) -> float:
        return 0.0


class EndpointProcess(AgentProcess):
    """One process incarnation; `endpoints` by zone."""

    cluster: EndpointCluster

    def __init__(self, *arguments: Any) -> None:
        self.endpoints: dict[str, ZoneEndpoint] = {}
        self._metrics = AgentMetrics()
        self._settles = False
        super().__init__(*arguments)
        self._endpoint_clock = SimulatedClock(self)
        # A wiped agent counts its processes anew: with the store their words are different ones.
        word = Random(f"{self.label} {self.hello().store}")
        self._process = f"{word.getrandbits(64):016x}"

    @property
    def has_waiting(self) -> bool:
        """Whether a command is parked."""
        return any(each.has_waiting for each in self.endpoints.values())

    def endpoint(self, zone: Replicas) -> ZoneEndpoint:
        """The endpoint of a zone that is open here."""
        known = self.endpoints.get(zone.uid)
        if known is not None and known.replicas is zone:
            return known
        made = self.endpoints[zone.uid] = WatchedEndpoint(
            zone,
            self.cluster.given_up,
            partial(self.cluster.hold_back, self.name),
            node=self.name,
            turn=self._ask_turn,
            nodes=lambda external: {name: (name, 1) for name in self.cluster.agents},
            is_up=lambda name: name in self.links,
            metrics=self._metrics,
            why_full=lambda: "no room" if self.name in self.cluster.full else "",
            process=self._process,
            send=self._say,
            clock=self._endpoint_clock,
        )
        return made

    def _say(self, node: str, message: Message) -> None:
        link = self.links.get(node)
        if self.world.tracing:
            self.world.trace(self.label, f"-> {node}: {message}")
        if link is not None:
            link.send(self, message)

    # --- as the process runs ---------------------------------------------------------------------

    def _ask_turn(self) -> None:
        if self.alive and not self._flush_asked:
            self._flush_asked = True
            self.world.after(self.cluster.turn_us(), self._flush_due)

    def _flush(self) -> None:
        super()._flush()
        for zone in self.core.zones.values():
            zone.transactions.parts.evaluate = self.endpoint(zone).across._evaluate

    def _finished(self) -> None:
        if self._settles:
            return
        self._settles = True
        for zone in list(self.core.awake.values()):
            self.endpoint(zone).settle()
        self._settles = False

    # --- links -----------------------------------------------------------------------------------

    def link_down(self, link: Link, gone: bool) -> None:
        for name in [name for name, each in self.links.items() if each is link]:
            for each in self.endpoints.values():
                each.forwards.peer_down(name)
                if gone:
                    each.overview.peer_gone(name)
        super().link_down(link, gone)

    def heard(self, link: Link, message: Message) -> None:
        if not isinstance(message, Forward | Forwarded):
            super().heard(link, message)
            if link.source.is_master:
                for each in self.endpoints.values():
                    each.table_changed()
            return
        source, zone = link.source.name, self.core.zones.get(message.zone)
        if zone is None or not self.hears(link):
            return
        if isinstance(message, Forward):
            self.endpoint(zone).forwards.perform(source, message)
        else:
            self.endpoint(zone).forwards.take_reply(source, message)


class EndpointCluster(Cluster):
    """A cluster of such agents.  `full`: those that say that nothing may grow; `given_up`: process
    and number of forwarded commands whose client was told that it is over."""

    agent_process = EndpointProcess

    def __init__(self, *arguments: Any) -> None:
        self.full: dict[str, None] = {}
        self.given_up: set[tuple[str, int]] = set()
        self.holds = 0.0  # how probable it is that a forwarded command is held back
        super().__init__(*arguments)

    def hold_back(self, source: str, target: str) -> None:
        """What an agent has just sent comes when its client has been told, if the link lives."""
        if self.world.chance(self.holds) and not self.network.is_cut(source, target):
            self.network.cut(source, target)
            first_ms = self.world.random.choice((5_000, 10_000))  # a read's client, a write's
            held_us = (first_ms + self.world.random.randrange(4_000)) * MS
            self.world.after(held_us, partial(self.network.heal, source, target))

    def processes(self) -> list[EndpointProcess]:
        """The living agents."""
        return [agent for agent in self.living() if isinstance(agent, EndpointProcess)]
