"""The agents that may restart now, and their copies, as their master knows them."""

from collections.abc import Collection, Iterable, Mapping, Set

from quorate.facts.zone import NEVER_MS
from quorate.planning.absence.choose_leavers import AgentLoad, ClusterLoad, zone_load
from quorate.planning.absence.disruption import AgentNow, Disruption, ZoneNow, disruption
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.zone_master.view.availability import serves_clients
from quorate.protocol.zone_master.zone_master import ZoneMaster


def cluster_disruption(
    agents: Mapping[str, KnownAgent],
    zones: Iterable[ZoneMaster],
    gone: Set[str],
    restarted: Collection[str],
) -> Disruption:
    """Judge for each known agent, and each in `gone`, whether it may restart now.

    - `gone`: agents without a running process, as the caller knows from elsewhere.
    - `restarted`: agents that were restarted for the same change.

    A row that a new master has read, and not yet heard of from its voters, counts as not served.
    An agent that is ending counts as away already.
    """
    known = [
        AgentNow(name, agent.record, _stays_online(agent), name in gone or agent.gone)
        for name, agent in sorted(agents.items())
    ]
    strangers = [AgentNow(name, None, False, gone=True) for name in sorted(gone - agents.keys())]
    present = [_zone_now(zone, agents) for zone in zones if not zone.record.deleting]
    return disruption([*known, *strangers], present, restarted)


def disruption_facts(agents: Mapping[str, KnownAgent], zones: Iterable[ZoneMaster]) -> object:
    """Return what `cluster_disruption` reads of agents and zones: cheap to compare."""
    there = [(each.record, _stays_online(each), each.gone) for _, each in sorted(agents.items())]
    return there, [
        (zone.record, zone.parts.changes, zone.nodes.refusals(), zone.target) for zone in zones
    ]


def cluster_load(agents: Mapping[str, KnownAgent], zones: Iterable[ZoneMaster]) -> ClusterLoad:
    """Return what each agent holds, also those that only rows name."""
    totals: dict[str, tuple[int, int, int]] = {}
    copies = 0
    for zone in zones:
        if zone.record.deleting:
            continue
        copies = max(copies, zone.record.replicas)
        rows = [part.row for part in zone.parts.values()]
        for name, more in zone_load(rows, zone.sizes).items():
            size, owned, led = totals.get(name, (0, 0, 0))
            totals[name] = size + more[0], owned + more[1], led + more[2]
    made: list[AgentLoad] = []
    for name in sorted({*totals, *agents}):
        agent = agents.get(name)
        record = agent.record if agent is not None else None
        made.append(
            AgentLoad(
                name,
                record is not None or name in totals,
                agent is not None and agent.online and not agent.removing,
                record is not None and record.draining,
                record.failure_domain if record is not None else "",
                *totals.get(name, (0, 0, 0)),
            )
        )
    return ClusterLoad(tuple(made), copies)


def _stays_online(agent: KnownAgent) -> bool:
    return agent.online and not agent.leaving


def _zone_now(zone: ZoneMaster, agents: Mapping[str, KnownAgent]) -> ZoneNow:
    record, parts = zone.record, zone.parts
    return ZoneNow(
        record.name,
        record.persistent,
        record.replicas,
        [parts[partition].row for partition in sorted(parts)],
        {p for p, part in parts.items() if part.unheard or not serves_clients(part, zone.nodes)},
        lacks_rows=(record.placed or record.recovering) and len(parts) < record.partitions,
        wanted=zone.target or (),
        joining=_joining(zone, agents),
    )


def _joining(zone: ZoneMaster, agents: Mapping[str, KnownAgent]) -> set[str]:
    """Return the agents that become data nodes of the zone when its scale-up timer fires."""
    record = zone.record
    if record.scale_up_ms >= NEVER_MS:
        return set()
    return {
        name
        for name, agent in agents.items()
        if agent.record is not None
        and agent.online
        and not (agent.draining or agent.removing or zone.is_data_node(name))
        and zone.fitting.fits(agent.record, record)
    }
