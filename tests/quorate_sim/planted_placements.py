"""Where copies go, and in which order: these rules switched off."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import DataNodes, Planner, ZoneRecord
from quorate.planning.steps.plan_migrations import PlannedMigration, named_step
from quorate.planning.steps.plan_step import plan_step
from quorate.planning.target.distribute_partitions import DataNode
from quorate.protocol.master.node_registry import NodeRegistry
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.zone_master import rebalance
from quorate.protocol.zone_master.agent_states import AgentState, AgentStates
from quorate.protocol.zone_master.fitting_nodes import FittingNodes
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate_sim.changed import changed


def domains_ignored() -> AbstractContextManager[None]:
    """Copies are distributed as if each agent were a failure domain by itself."""
    return _nodes_with(failure_domain="")


def weights_ignored() -> AbstractContextManager[None]:
    """Copies are distributed as if all agents were alike."""
    return _nodes_with(weight=1)


def _nodes_with(**fields: Any) -> AbstractContextManager[None]:
    def data_nodes(self: AgentStates, record: ZoneRecord, now: Now) -> list[DataNode]:
        nodes = _data_nodes(self, record, now)
        return [msgspec.structs.replace(node, **fields) for node in nodes]

    _data_nodes = AgentStates.data_nodes
    return changed(AgentStates, "data_nodes", data_nodes)


def silent_dropped_early() -> AbstractContextManager[None]:
    """A voter in memory is given up as soon as its node has left: no timer is waited for."""

    def state_of(self: AgentStates, agent: KnownAgent, record: ZoneRecord, now: Now) -> AgentState:
        state = _state_of(self, agent, record, now)
        is_early = state is AgentState.WAITED and agent.has_left and not record.persistent
        return AgentState.GIVEN_UP if is_early else state

    _state_of = AgentStates._state_of
    return changed(AgentStates, "_state_of", state_of)


def filters_read_once() -> AbstractContextManager[None]:
    """Whether a node matches is judged only by the first filter of a zone."""

    def matches(self: FittingNodes, node: NodeRecord, text: str, nodes: DataNodes | None) -> bool:
        known = self._known.get(node.name)
        return known[2] if known is not None else _matches(self, node, text, nodes)

    _matches = FittingNodes._matches
    return changed(FittingNodes, "_matches", matches)


def roles_stay_where_they_were_taken() -> AbstractContextManager[None]:
    """A row whose primary was followed is looked at again only when the topology changes."""

    def owners_changed(self: Rebalance, before: PartitionRow, row: PartitionRow) -> str:
        return ""

    return changed(Rebalance, "owners_changed", owners_changed)


def staged_removes_first() -> AbstractContextManager[None]:
    """Staged takes a backup that is not wanted away before what follows it has its copy."""

    def next_step(
        replicas: Sequence[str | None],
        voters: Sequence[str],
        wanted: Sequence[str],
        lost: Collection[str],
        dead: Collection[str],
        size: int,
        planner: Planner = Planner.MINIMAL,
        given_up: Collection[str] = (),
    ) -> PlannedMigration | None:
        leavers = [n for n in replicas[1:] if n is not None and n in voters and n not in wanted]
        if planner is not Planner.STAGED or not leavers or len(voters) > size:
            return plan_step(replicas, voters, wanted, lost, dead, size, planner, given_up)
        after = tuple(n for n in replicas if n != leavers[0])
        left = tuple(n for n in voters if n != leavers[0])
        return named_step(tuple(replicas), None, leavers[0], after, left)

    return changed(rebalance, "plan_step", next_step)


def timers_count_anew_under_each_master() -> AbstractContextManager[None]:
    """A master takes an agent that joined or left before it for one that did so long ago."""

    def take_since(self: NodeRegistry, agent: KnownAgent, record: NodeRecord, now: Now) -> None:
        _take_since(self, agent, record, now)
        assert agent.since is not None
        agent.since = agent.since._replace(at_ms=now.boot_ms - 600_000)

    _take_since = NodeRegistry._take_since
    return changed(NodeRegistry, "_take_since", take_since)
