"""The agents as one zone sees them: the state of each, and which of them may hold its copies."""

import enum

import msgspec

from quorate.facts.time import Now
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.planning.target.distribute_partitions import DataNode
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import KnownAgent, ZoneNodes
from quorate.protocol.zone_master.fitting_nodes import FittingNodes
from quorate.protocol.zone_master.zone import Parts


class AgentState(enum.StrEnum):
    """The state of an agent for one zone when its target is computed."""

    ONLINE = "online"
    NEW_STORE = "new-store"
    WAITED = "waited"
    LOST = "lost"
    GIVEN_UP = "given-up"
    REFUSED = "refused"
    WITHOUT = "without"
    DRAINING = "draining"
    UNREGISTERED = "unregistered"
    JOINING = "joining"
    UNFIT = "unfit"


_WITHOUT_COPIES = (
    AgentState.DRAINING,
    AgentState.UNREGISTERED,
    AgentState.JOINING,
    AgentState.GIVEN_UP,
)
"""Agents in these states are named by a target for nothing, not even for a copy that they have."""
_GIVING_AWAY = (AgentState.DRAINING, AgentState.UNREGISTERED, AgentState.UNFIT)
"""Agents in these states are to give away what they have, because a person decided so."""
_OUT_FOR_NOW = (
    AgentState.LOST,
    AgentState.GIVEN_UP,
    AgentState.WITHOUT,
    AgentState.JOINING,
)
"""Targets do without agents in these states, for as long as that lasts."""
_WAITED_FOR = (AgentState.WAITED, AgentState.REFUSED)
"""Agents in these states get no new copies, but a target names them as before."""
_AT_REST = {AgentState.ONLINE, AgentState.JOINING, AgentState.UNFIT}


class AgentStates:
    """The states of all agents for one zone. `nodes`, `parts` and `fitting` are the zone's own."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: ZoneNodes,
        parts: Parts,
        fitting: FittingNodes,
    ) -> None:
        self._agents = cluster.agents
        self._settings = cluster.settings
        self._nodes = nodes
        self._parts = parts
        self._fitting = fitting
        self._states: dict[str, AgentState] = {}
        self.out_for_now: frozenset[str] = frozenset()
        """The agents that targets do without until their state changes by itself."""

    def data_nodes(self, record: ZoneRecord, now: Now) -> list[DataNode]:
        """Return the agents that may hold copies; those that are waited for count as online.

        Those that do not fit the zone count as offline: they get nothing, and keep a copy only if
        fewer agents are left than the zone has replicas. If no other is there, those of them that
        hold copies count as if they did fit, so that copies and primaries are cared for.
        """
        nodes: list[DataNode] = []
        voters = self._parts.voters()
        replaced = {voter.node for voter in voters if self._nodes.is_dead(voter)}
        self._states.clear()
        for name in sorted(self._agents):
            agent = self._agents[name]
            state = self._state_of(agent, record, now)
            if state is AgentState.ONLINE and name in replaced:
                state = AgentState.NEW_STORE
            self._states[name] = state
            if agent.record is None or state in _WITHOUT_COPIES:
                continue
            there = state in (AgentState.ONLINE, AgentState.NEW_STORE) or (
                state in _WAITED_FOR and bool(self._parts)
            )
            nodes.append(DataNode(name, agent.record.weight, agent.record.failure_domain, there))
        self.out_for_now = frozenset(
            name for name, state in self._states.items() if state in _OUT_FOR_NOW
        )
        if any(node.online for node in nodes):
            return nodes
        kept = {
            voter.node
            for voter in voters
            if self._states.get(voter.node) is AgentState.UNFIT and self._agents[voter.node].online
        }
        return [msgspec.structs.replace(node, online=node.name in kept) for node in nodes]

    def _state_of(self, agent: KnownAgent, record: ZoneRecord, now: Now) -> AgentState:
        if agent.record is None or agent.removing:
            return AgentState.UNREGISTERED
        if agent.draining:
            return AgentState.DRAINING
        known, fits = record.data_nodes, self._fitting.fits(agent.record, record)
        is_in = fits if known is None else agent.record.name in known.nodes
        if not agent.online:
            is_given_up = fits and agent.has_left and record.storage is StorageKind.IN_MEMORY
            if is_in:
                return AgentState.WAITED
            return AgentState.GIVEN_UP if is_given_up else AgentState.LOST
        if not is_in:
            return AgentState.JOINING if fits else AgentState.UNFIT
        refusal = self._nodes.refusal(agent.record.name)
        if refusal is not None:
            refused_ms = now.boot_ms - refusal.since_ms
            is_waited_for = refused_ms < self._settings.refusal_delay_ms
            return AgentState.REFUSED if is_waited_for else AgentState.WITHOUT
        return AgentState.ONLINE

    def of(self, node: str) -> AgentState | None:
        """Return the state of an agent at the last look; None if there was none of this name."""
        return self._states.get(node)

    def gives_away(self, node: str) -> bool:
        """Return whether an agent is to have no copies, so that those it has move off it."""
        agent = self._agents.get(node)
        is_known = agent is not None and agent.record is not None
        return is_known and self._states.get(node) in _GIVING_AWAY

    @property
    def are_at_rest(self) -> bool:
        """Whether all agents were online at the last look, and none of them is about to leave."""
        return set(self._states.values()) <= _AT_REST

    def missing(self) -> list[str]:
        """Return the reasons why copies are missing, node by node."""
        words = {
            AgentState.WAITED: "{} is offline and waited for",
            AgentState.LOST: "{} is offline; another agent without a copy would take its place",
            AgentState.GIVEN_UP: "{} is offline, and its votes are given up; another agent without "
            "a copy would take its place",
            AgentState.REFUSED: "{} refuses the zone and is waited for",
            AgentState.WITHOUT: "{} refuses the zone; another agent without a copy would take its "
            "place",
            AgentState.NEW_STORE: "{} came back with a new store: the votes of its old store are "
            "given up, then it gets new copies",
            AgentState.DRAINING: "{} is draining",
            AgentState.UNFIT: "{} does not match dataNodesFilter or storageProfile",
            AgentState.JOINING: "{} has joined and is no data node yet",
        }
        return [
            words[state].format(node)
            for node, state in sorted(self._states.items())
            if state in words
        ]

    def misfits(self, record: ZoneRecord) -> str:
        """Return a sentence if fewer data nodes fit the zone than it has replicas, else "".

        Copies on agents that do not fit then stay where they are.
        """
        asked = [f"dataNodesFilter {record.filter}"] if record.filter else []
        asked += [f"storageProfile {record.storage_profile}"] if record.storage_profile else []
        old = [
            name
            for name, agent in self._agents.items()
            if agent.record is not None and agent.record.frame_format < record.frame_format
        ]
        if old:
            asked.append(f"consistencyMode {record.mode} (upgrade {', '.join(sorted(old))})")
        if not asked:
            return ""
        nodes = record.data_nodes.nodes if self._parts and record.data_nodes else self._agents
        fit = [n for n, agent in self._agents.items() if n in nodes and self._fits(agent, record)]
        if len(fit) >= record.replicas:
            return ""
        others = ", ".join(sorted({voter.node for voter in self._parts.voters()} - {*fit}))
        who = f"{len(fit)} ({', '.join(sorted(fit))})" if fit else "none"
        stays = f"; copies on {others} stay until then" if others else ""
        return (
            f"of {len(self._agents)} agents {who} match {' and '.join(asked)}, and the zone has "
            f"{record.replicas} replicas: add agents that match, or change the Zone{stays}"
        )

    def _fits(self, agent: KnownAgent, record: ZoneRecord) -> bool:
        is_member = not (agent.removing or agent.draining or agent.has_left)
        return is_member and agent.record is not None and self._fitting.fits(agent.record, record)
