"""Who is cut off from whom, in which way and for how long."""

from __future__ import annotations

from collections.abc import Callable

from quorate_sim.agent_process import AgentProcess
from quorate_sim.cluster import Cluster
from quorate_sim.network import Link
from quorate_sim.world import MS

CUT_MS = (800, 3000, 8000)
"""How long at most something is cut off: no longer than a lease, until it is missed, for long."""


class Cuts:
    """Cuts of one run.  `restart` begins an agent's process anew at once, if it may."""

    def __init__(
        self, cluster: Cluster, is_over: Callable[[], bool], restart: Callable[[str], None]
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._is_over = is_over
        self._restart = restart

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self.world.after(self.world.random.randrange(low_ms, high_ms) * MS, action)

    def anybody(self) -> None:
        """In one of the seed's ways."""
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
            if r.random() < 0.4:
                self._later(500, 1600, lambda: self._restart(friend))
        elif style == "ever lonelier":
            # The same, but then that one is lost too; it may not even remember what it granted.
            primaries = [agent.name for agent in self.cluster.living() if self._is_primary(agent)]
            one = r.choice(primaries or names)
            friend = r.choice([name for name in names if name != one])
            others = [name for name in names if name not in (one, friend)]
            pairs = [pair for other in others for pair in ((one, other), (other, one))]
            self._later(300, 1000, lambda: self._lose_friend(one, friend, r.random() < 0.5))
        else:
            side = r.sample(names, 1 if style == "alone" else r.randrange(1, len(names)))
            pairs = [
                pair
                for one in side
                for other in names
                if other not in side
                for pair in ((one, other), (other, one))
            ]
        self.pairs(pairs)

    def _is_primary(self, agent: AgentProcess) -> bool:
        return any(zone.roles for zone in agent.core.zones.values())

    def _lose_friend(self, one: str, friend: str, restarts: bool) -> None:
        if self._is_over():
            return
        self.pairs([(one, friend), (friend, one)])
        if restarts:
            self._restart(friend)

    def off(self, side: list[str]) -> None:
        """These still reach each other, and nobody else, until others have taken over."""
        others = [agent.name for agent in self.cluster.living() if agent.name not in side]
        others += [master.name for master in self.cluster.masters if master.alive]
        pairs = [pair for a in sorted(set(side)) for b in others for pair in ((a, b), (b, a))]
        self.pairs(pairs, 2500, (6000,))

    def isolate(self, name: str, fault: str) -> None:
        """One process from all others: `fault` is cut, one-way cut or break."""
        links = [k for k in self.cluster.network.links if name in (k.source.name, k.target.name)]
        if fault == "break":
            for link in links:
                self.break_link(link)
            return
        others = [agent.name for agent in self.cluster.living()]
        others += [master.name for master in self.cluster.masters if master.alive]
        out = [(name, other) for other in others if other != name]
        back = [(other, name) for other in others if other != name]
        if not out:
            return
        if fault == "cut":
            self.pairs(out + back)
        else:
            self.pairs(self.world.random.choice((out, back)))

    def break_link(self, link: Link) -> None:
        """A connection breaks; it may be dialed again at once."""
        self.cluster.coverage.struck("break", [link.source.name, link.target.name])
        self.cluster.network.lose(link)

    def pairs(
        self, pairs: list[tuple[str, str]], low_ms: int = 200, longs_ms: tuple[int, ...] = CUT_MS
    ) -> None:
        """From the first of each to the second nothing passes for a while."""
        if not pairs:
            return
        one_way = all((target, source) not in pairs for source, target in pairs)
        # Who is cut off from most others is struck, not those it is cut off from.
        ends = [name for pair in pairs for name in pair]
        most = max(map(ends.count, ends))
        struck = sorted({name for name in ends if ends.count(name) == most})
        self.cluster.coverage.struck("one-way cut" if one_way else "cut", struck)
        self.world.trace("network", f"cut {pairs}")
        for pair in pairs:
            self.cluster.network.cut(*pair)
        long_ms = self.world.random.choice(longs_ms)
        self._later(low_ms, long_ms, lambda: self._heal(pairs, self.world.random.choice(struck)))

    def _heal(self, pairs: list[tuple[str, str]], struck: str) -> None:
        if self._is_over():
            return  # all was healed
        if self.world.chance(0.25):
            # Whoever was cut off is begun anew, with what only it has: nothing of that was sent.
            self._restart(struck)
        self.world.trace("network", f"healed {pairs}")
        for pair in pairs:
            self.cluster.network.heal(*pair)
