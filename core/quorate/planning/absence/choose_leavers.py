"""Choose the agents that leave when there are to be fewer, so that the least data moves.

Agents are chosen one after the other, each among those that are left:

1. If another agent can go, keep one without which there would be fewer agents, or fewer failure
   domains, than a zone asks for copies.
2. Prefer agents that hold nothing and never took part, or are already draining.
3. Then take the one that holds the fewest bytes. Among those that hold nearly the same, take the
   one with the fewest copies, then the fewest primaries, then the last one. What it holds counts as
   spread over those that are left: over its own failure domain if each domain must have a copy,
   else over all.

An offline agent does not count as one that holds copies. A chosen agent is drained: its copies are
elsewhere before it goes, and every partition keeps its voters and copies meanwhile, however many
agents are drained at once.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow

NEARLY_BYTES = 64 << 20
"""Two agents hold nearly the same if they differ by at most this, or by a tenth of the average. So
a few keys do not decide which one leaves."""


class AgentLoad(msgspec.Struct, frozen=True):
    """One agent and what it holds in all zones.

    `takes_part`: it is registered, or a row names it. `failure_domain`: "" if it is a domain of its
    own. `bytes`: as far as they are known.
    """

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
        """Its failure domain, under a name that no other domain has."""
        return self.failure_domain, "" if self.failure_domain else self.name


class ClusterLoad(msgspec.Struct, frozen=True):
    """All agents of a cluster and what they hold. `copies`: the most that any zone asks for."""

    agents: tuple[AgentLoad, ...] = ()
    copies: int = 0


def zone_load(
    rows: Sequence[PartitionRow], sizes: Mapping[int, int]
) -> dict[str, tuple[int, int, int]]:
    """Return the bytes, copies and primaries that each agent holds of one zone.

    `sizes`: bytes of one copy, by partition.
    """
    found: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        owners = dict.fromkeys((*row.owners, *row.voter_nodes))
        for name in owners:
            size, copies, primaries = found.get(name, (0, 0, 0))
            size += sizes.get(row.partition, 0)
            found[name] = size, copies + 1, primaries + (row.replicas[0] == name)
    return found


def choose_leavers(agents: Collection[AgentLoad], count: int, copies: int) -> tuple[str, ...]:
    """Choose `count` of these agents, in the order of the choice.

    `copies`: the most that any zone asks for. Of equal agents, the last one in `agents` goes first.
    """
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
    """Return the agent that leaves next. `there`: possible holders of copies, by domain."""
    is_short = sum(map(len, there.values())) <= copies
    is_narrow = len(there) <= copies

    def cost_of_leaving(agent: AgentLoad) -> tuple[bool, bool, bool]:
        """Return what leaving costs; the first entry that differs between two agents decides.

        The entries: too few agents for the copies, too few failure domains, the agent takes part.
        """
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
