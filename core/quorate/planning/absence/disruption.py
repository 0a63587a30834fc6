"""Decide which agents may restart now, and how many may be away.

The rules, for every partition in which an agent votes with its registered store:

1. without the agent, a majority of the voters is online and holds everything; during a migration
   this must hold for the voters before it and for those after it;
2. the partition is served, and the agent is not the destination of a migration;
3. the agent that was restarted before holds everything again, and no partition lacks a voter that
   it could have;
4. the agent has no copy in memory that a reset left: it may be the only one with some writes.

Whether a voter holds everything is read from the row: `replicas` names the voters that own, and a
voter that was away is named again only when it has caught up. Restarting an agent of a zone without
persistent storage costs the copy, so rule 1 also keeps the data there. Unknown facts count against
a restart.
"""

import enum
from collections.abc import Collection, Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow, majority
from quorate.facts.topology import NodeRecord, Voter


class AgentNow(msgspec.Struct, frozen=True):
    """One agent. `record` is its registration, None if it has none.

    `gone`: no process of it runs, so a restart takes nothing away.
    """

    name: str
    record: NodeRecord | None
    online: bool
    gone: bool = False


class ZoneNow(msgspec.Struct, frozen=True):
    """One zone with its known rows. `replicas`: the copies that each partition should have.

    `unserved`: partitions whose primary does not serve, or is not known to. `lacks_rows`: a
    partition that was placed has no row at present. `wanted`: the nodes of each partition's target;
    empty if there is none yet. `joining`: agents that become data nodes when the scale-up timer
    fires.
    """

    name: str
    persistent: bool
    replicas: int
    rows: Sequence[PartitionRow]
    unserved: Collection[int] = ()
    lacks_rows: bool = False
    wanted: Sequence[Sequence[str]] = ()
    joining: Collection[str] = ()


class AgentDisruption(msgspec.Struct, frozen=True):
    """The verdict on one agent: what its restart waits for; "": nothing."""

    name: str
    primaries: int
    copies: int
    restart_waits_for: str = ""

    @property
    def may_restart(self) -> bool:
        """Whether a restart leaves every partition its majority."""
        return not self.restart_waits_for


class EvictionBlock(enum.StrEnum):
    """Reason why no protected agent may be evicted. If several apply, the first is reported."""

    ROWS_REBUILT = "RowsRebuilt"
    TOO_FEW_COPIES = "TooFewCopies"
    """A zone asks for one or two copies: each one is needed, whichever agents come back."""
    AGENTS_AWAY = "AgentsAway"
    CATCHING_UP = "CatchingUp"
    NOT_SERVED = "NotServed"
    COPIES_MISSING = "CopiesMissing"


class NoEviction(msgspec.Struct, frozen=True):
    """The reason why no protected agent may be evicted now.

    `message`: the reason as a sentence, which stays the same while one partition after the other
    catches up. `agents`: the agents that are waited for, sorted.
    """

    reason: EvictionBlock
    message: str
    agents: tuple[str, ...] = ()


class Disruption(msgspec.Struct, frozen=True):
    """The verdicts on all agents, in the order in which they should restart: most primaries last.

    For a PodDisruptionBudget: any `unavailable_max` agents of `protected`, which are those that
    rows name, may be away at once. Agents that no row names may be away at any time. `no_eviction`:
    why `unavailable_max` is 0; None if it is more, or if nothing is protected. `away`: those of
    `protected` that are away, and that every partition can do without besides `unavailable_max`
    others; empty if that is 0.
    """

    agents: tuple[AgentDisruption, ...]
    protected: tuple[str, ...]
    unavailable_max: int
    no_eviction: NoEviction | None = None
    away: tuple[str, ...] = ()

    @property
    def limited(self) -> tuple[str, ...]:
        """The agents of which at most `unavailable_max` may be away at once."""
        return tuple(name for name in self.protected if name not in self.away)

    def of(self, name: str) -> AgentDisruption:
        """Return the verdict on the agent of this name; KeyError if there is none."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        raise KeyError(name)


def disruption(
    agents: Sequence[AgentNow], zones: Sequence[ZoneNow], restarted: Collection[str] = ()
) -> Disruption:
    """Judge for each of `agents` whether it may restart now.

    `restarted`: agents that were restarted before for the same change. The next one waits until
    these hold everything again.
    """
    found = _Findings(agents)
    for zone in zones:
        if zone.lacks_rows:
            found.lacks_rows(zone.name)
        for row in zone.rows:
            found.look(zone, row)
    return found.result(restarted)


class _Findings:
    """The findings so far, gathered partition by partition."""

    def __init__(self, agents: Sequence[AgentNow]) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._primaries = dict.fromkeys(self._agents, 0)
        self._copies = dict.fromkeys(self._agents, 0)
        self._blocks: dict[str, list[str]] = {name: [] for name in self._agents}
        """Agent -> one sentence for each partition because of which its restart has to wait."""
        self._named: set[str] = set()
        """Agents that rows name."""
        self._behind: dict[str, str] = {}
        """Agent -> the first partition where it votes but does not hold everything."""
        self._short = ""
        """The first partition that has fewer voters than it could have."""
        self._online = sum(self._is_online(name) for name in self._agents)
        self._lacking: list[str] = []
        self._spare: int | None = None
        """The number of voters that every partition can do without."""
        self._needed: dict[EvictionBlock, dict[str, set[str]]] = {}
        """Reason -> zone -> agents that are waited for, over the partitions that need every
        voter."""

    def lacks_rows(self, zone: str) -> None:
        """Note that rows of a zone are being rebuilt from what agents have."""
        self._lacking.append(zone)

    def look(self, zone: ZoneNow, row: PartitionRow) -> None:
        """Take one partition into account."""
        where = f"partition {row.partition} of Zone {zone.name}"
        sets = [*row.voter_sets] if row.active is None else [row.voters, row.active.voters]
        voters = list(dict.fromkeys(voter for each in sets for voter in each))
        voting = [voter for voter in voters if not self._is_dead(voter, zone.persistent)]
        there = {voter for voter in voting if self._is_online(voter.node)}
        whole = {voter for voter in there if voter.node in row.owners}
        for voter in voters:
            self._named.add(voter.node)
            if voter not in whole:
                self._behind.setdefault(voter.node, where)
        if not self._short and len(row.voters) < self._voters_possible(zone, row):
            self._short = where
        destination = row.destination
        if destination is not None and destination.node not in {voter.node for voter in voters}:
            self._named.add(destination.node)
        for at, owner in enumerate(row.replicas):
            if owner in self._copies:
                self._copies[owner] += 1
                self._primaries[owner] += at == 0
        is_served = row.partition not in zone.unserved
        if voting:
            spare = min(sum(v in whole for v in each) - majority(len(each)) for each in sets)
            self._note_spare(spare if is_served else 0)
            if spare <= 0 or not is_served:
                missing = [voter for voter in voters if voter not in whole]
                away = {voter.node for voter in missing if voter not in there}
                behind = {voter.node for voter in missing if voter in there}
                self._note_need(zone, is_served, away, behind)
        for name in dict.fromkeys(voter.node for voter in voting):
            if not is_served:
                self._block(name, f"{where} is not served")
                continue
            for each in sets:
                left = sum(v in whole and v.node != name for v in each)
                if left < majority(len(each)):
                    self._block(name, _too_few(where, each, whole, there, name, left))
                    break
        if destination is not None:
            self._block(destination.node, f"{where} is being moved to it")
        for copy in row.left_by_reset:
            if not self._is_dead(copy, zone.persistent):
                self._named.add(copy.node)
                if not zone.persistent:
                    self._block(copy.node, f"a reset left it a copy of {where} in memory")
                    self._note_spare(0)
                    self._note_need(zone, is_served, (), ())

    def _voters_possible(self, zone: ZoneNow, row: PartitionRow) -> int:
        """Return how many voters the partition could have, with the agents that are there.

        A zone in memory may have dropped the votes of an agent that was restarted, and may name it
        again only when the scale-up timer fires.
        """
        possible = self._online
        if zone.wanted:
            wanted = {*zone.wanted[row.partition], *zone.joining}
            possible = sum(node in row.voter_nodes or self._is_online(node) for node in wanted)
        return min(zone.replicas, possible)

    def _is_dead(self, voter: Voter, persistent: bool) -> bool:
        """Return whether the voter's store is gone for good: its agent registered another one."""
        agent = self._agents.get(voter.node)
        record = agent.record if agent is not None else None
        return record is not None and record.zone_store(persistent) != voter.store

    def _is_online(self, name: str) -> bool:
        agent = self._agents.get(name)
        return agent is not None and agent.record is not None and agent.online and not agent.gone

    def _block(self, node: str, why: str) -> None:
        if node in self._blocks:
            self._blocks[node].append(why)

    def _note_spare(self, spare: int) -> None:
        self._spare = spare if self._spare is None else min(self._spare, spare)

    def _note_need(
        self, zone: ZoneNow, is_served: bool, away: Collection[str], behind: Collection[str]
    ) -> None:
        """Note that a partition of `zone` can do without none of its voters, and why."""
        agents: Collection[str] = ()
        if majority(zone.replicas) == zone.replicas:
            reason = EvictionBlock.TOO_FEW_COPIES
        elif away:
            reason, agents = EvictionBlock.AGENTS_AWAY, away
        elif behind:
            reason, agents = EvictionBlock.CATCHING_UP, behind
        elif not is_served:
            reason = EvictionBlock.NOT_SERVED
        else:
            reason = EvictionBlock.COPIES_MISSING
        self._needed.setdefault(reason, {}).setdefault(zone.name, set()).update(agents)

    def _no_eviction(self) -> NoEviction | None:
        if self._lacking:
            return NoEviction(EvictionBlock.ROWS_REBUILT, _rebuilt(self._lacking[0]))
        reason = next((each for each in EvictionBlock if each in self._needed), None)
        if reason is None:
            return None
        zones = self._needed[reason]
        zone, more = min(zones), len(zones) - 1
        of = f"Zone {zone}" + (f" and {more} more" if more else "")
        agents = tuple(sorted({agent for waited in zones.values() for agent in waited}))
        names, others = ", ".join(agents), f"partitions of {of} need all their other voters"
        match reason:
            case EvictionBlock.TOO_FEW_COPIES:
                why = f"{of} has one or two copies, and needs each of them"
            case EvictionBlock.AGENTS_AWAY:
                why = f"offline: {names}; {others}"
            case EvictionBlock.CATCHING_UP:
                why = f"catching up: {names}; {others}"
            case EvictionBlock.NOT_SERVED:
                why = f"partitions of {of} are not served"
            case _:
                why = f"partitions of {of} lack copies, and need all their present voters"
        return NoEviction(reason, why, agents)

    def result(self, restarted: Collection[str]) -> Disruption:
        """Return the verdict from everything that was found."""
        behind = [name for name in sorted(restarted) if self._is_behind(name)]
        made = [
            AgentDisruption(
                name,
                self._primaries[name],
                self._copies[name],
                self._restart_waits_for(
                    name,
                    [each for each in behind if each != name],
                    self._short if any(each != name for each in restarted) else "",
                ),
            )
            for name in self._agents
        ]
        protected = tuple(sorted(self._named))
        spare = len(self._agents) if self._spare is None else max(self._spare, 0)
        unavailable_max = 0 if self._lacking else min(spare, len(self._agents))
        # A voter that is offline is not whole, so what is to spare is of the others alone.
        away = [name for name in protected if unavailable_max and not self._is_online(name)]
        return Disruption(
            tuple(sorted(made, key=lambda agent: (agent.primaries, agent.copies, agent.name))),
            protected,
            unavailable_max,
            self._no_eviction(),
            tuple(away),
        )

    def _is_behind(self, name: str) -> bool:
        return name in self._agents and (not self._is_online(name) or name in self._behind)

    def _restart_waits_for(self, name: str, behind: Sequence[str], short: str) -> str:
        if self._agents[name].gone:
            return ""  # its restart takes nothing away, and may bring back what is missing
        if self._lacking:
            return f"agent {name}: {_rebuilt(self._lacking[0])}"
        blocks = self._blocks[name]
        if blocks:
            more = f"; and {len(blocks) - 1} more" if len(blocks) > 1 else ""
            return f"agent {name}: {blocks[0]}{more}"
        if behind:
            other = behind[0]
            lagging = self._behind.get(other) if self._agents[other].online else None
            until = f"has caught up in {lagging}" if lagging else "is back"
            return f"agent {name}: waiting until agent {other}, restarted before it, {until}"
        if short:
            return f"agent {name}: waiting until {short} has all its copies again"
        return ""


def _too_few(
    where: str,
    voters: Sequence[Voter],
    whole: Collection[Voter],
    there: Collection[Voter],
    name: str,
    left: int,
) -> str:
    """Return the sentence on why the majority would be lost."""
    missing = [
        f"{voter.node} {'is catching up' if voter in there else 'is offline'}"
        for voter in voters
        if voter not in whole and voter.node != name
    ]
    why = f": {', '.join(missing)}" if missing else ""
    return (
        f"{where} would keep {left} of {len(voters)} voters up to date, "
        f"and needs {majority(len(voters))}{why}"
    )


def _rebuilt(zone: str) -> str:
    return f"rows of Zone {zone} are being rebuilt from the agents' data"
