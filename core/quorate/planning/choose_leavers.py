"""The agents that leave when there are to be fewer, so that the least data has to move.

One after the other is chosen, each time of those that are left:

1. none without which fewer agents than a zone asks for copies would be there to hold them, nor one
   without which these would be in fewer failure domains, as long as another can go;
2. first those that hold nothing and never took part, or are on their way out already;
3. then the one that holds least; of those that hold nearly the same the one with the fewest copies
   and primaries, then the last one.  What it holds goes to those that are left: to those of its own
   failure domain where each domain has to have a copy, else to all alike.

An agent that is away does not count as one that holds copies.  Who is chosen is drained: its copies
are elsewhere before it goes, and every partition keeps its voters and its copies meanwhile, however
many are drained at once.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow

NEARLY_BYTES = 64 << 20
"""Two agents hold nearly the same if they differ by at most this, or by a tenth of the average: a
few keys do not decide which one leaves."""


class AgentLoad(msgspec.Struct, frozen=True):
    """One agent and what it holds, in all zones.  `takes_part`: it is registered, or a row names
    it.  `failure_domain`: empty where it is one by itself.  `bytes`: as far as they are known."""

    name: str
    takes_part: bool = True
    online: bool = True
    draining: bool = False
    failure_domain: str = ""
    bytes: int = 0
    copies: int = 0
    primaries: int = 0

    @property
    def is_there(self) -> bool:
        """Whether copies may be placed on it now."""
        return self.takes_part and self.online and not self.draining

    @property
    def place(self) -> tuple[str, str]:
        """Its failure domain, by a name that no other has."""
        return self.failure_domain, "" if self.failure_domain else self.name


class ClusterLoad(msgspec.Struct, frozen=True):
    """All agents of a cluster with what they hold.  `copies`: the most that a zone asks for."""

    agents: tuple[AgentLoad, ...] = ()
    copies: int = 0


def zone_load(
    rows: Sequence[PartitionRow], sizes: Mapping[int, int]
) -> dict[str, tuple[int, int, int]]:
    """Return bytes, copies and primaries that each agent holds of one zone.  `sizes`: of a copy, by
    partition."""
    found: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        owners = dict.fromkeys((*row.owners, *row.voter_nodes))
        for name in owners:
            size, copies, primaries = found.get(name, (0, 0, 0))
            size += sizes.get(row.partition, 0)
            found[name] = size, copies + 1, primaries + (row.replicas[0] == name)
    return found


def choose_leavers(agents: Collection[AgentLoad], count: int, copies: int) -> tuple[str, ...]:
    """`count` of these agents, in the order of the choice.  `copies`: the most that a zone asks
    for.  Of equals the last one of `agents` goes first."""
    left = {agent.name: agent for agent in agents}
    held = {agent.name: float(agent.bytes) for agent in agents}
    chosen: list[str] = []
    for _ in range(min(count, len(left))):
        there: dict[tuple[str, str], list[str]] = {}
        for agent in left.values():
            if agent.is_there:
                there.setdefault(agent.place, []).append(agent.name)
        gone = _cheapest(left.values(), there, held, copies)
        del left[gone.name]
        chosen.append(gone.name)
        takers = [name for name in there.get(gone.place, ()) if name != gone.name]
        if len(there) > copies or not takers:
            takers = [name for each in there.values() for name in each if name != gone.name]
        for name in takers:
            held[name] += held[gone.name] / len(takers)
    return tuple(chosen)


def _cheapest(
    agents: Collection[AgentLoad],
    there: Mapping[tuple[str, str], Sequence[str]],
    held: Mapping[str, float],
    copies: int,
) -> AgentLoad:
    """The one that leaves next; `there`: agents that hold copies, by failure domain."""
    is_short = sum(map(len, there.values())) <= copies
    is_narrow = len(there) <= copies

    def cost_of_leaving(agent: AgentLoad) -> tuple[bool, bool, bool]:
        """Whether copies lack an agent, or a failure domain, and whether it takes part; the first
        that differs between two agents decides."""
        return (
            agent.is_there and is_short,
            agent.is_there and is_narrow and len(there[agent.place]) == 1,
            agent.takes_part and not agent.draining,
        )

    least_cost = min(map(cost_of_leaving, agents))
    fit = [agent for agent in agents if cost_of_leaving(agent) == least_cost]
    nearly = max(NEARLY_BYTES, sum(held[agent.name] for agent in agents) / len(agents) / 10)
    least = min(held[agent.name] for agent in fit)
    light = [agent for agent in fit if held[agent.name] <= least + nearly]
    return min(reversed(light), key=lambda agent: (agent.copies, agent.primaries))
