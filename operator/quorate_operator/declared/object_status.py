"""Makes the status of Zones and StorageClusters from what the master knows.

Pure: the same observation gives the same status; a condition's time changes only with its status.
"""

from collections.abc import Mapping, Sequence
from shlex import quote
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from quorate.facts.addresses import join_address
from quorate.facts.zone import ConsistencyMode, StorageKind
from quorate.planning.queue.retries import StuckMigration
from quorate.protocol.status import PHASE_UNKNOWN, ClusterStatus, TimerStatus, unrecorded_zones
from quorate.protocol.status import ZoneStatus as Observed
from quorate.wire.restoring import RESTORING, Restoring
from quorate.wire.schema.resource import Condition
from quorate.wire.storage_cluster import (
    ClusterMaster,
    ClusterMember,
    StorageCluster,
    StorageClusterStatus,
)
from quorate.wire.zone import (
    Zone,
    ZoneMigrations,
    ZonePartitions,
    ZoneStatus,
    ZoneTimer,
    begun_import,
)
from quorate_operator import names
from quorate_operator.declared.acceptance import Acceptance
from quorate_operator.declared.drains import DrainView
from quorate_operator.mastership.refused_writes import MASTER_FAILED, Refusal
from quorate_operator.owned.agent_conditions import Fact, agent_conditions
from quorate_operator.owned.children import selector_text
from quorate_operator.owned.owned_objects import ManagedView
from quorate_operator.process.clock import rfc3339


class Seen(NamedTuple):
    """One observation of a cluster; the defaults describe a cluster that is not led."""

    status: ClusterStatus = ClusterStatus(0, (), ())
    problem: str = ""
    """Why the cluster is not led, a sentence; empty if it is led."""
    unreached: Mapping[str, str] = MappingProxyType({})
    """Address -> why no agent is connected from there."""
    refusal: Refusal | None = None
    """Why the master's decisions cannot be written."""
    drains: DrainView = DrainView()
    kept: Mapping[str, str] = MappingProxyType({})
    """Agent -> why it cannot be drained, though it is to leave."""
    recovery: str = ""
    """Why new zones wait (agents are asked for theirs), a sentence; empty if they do not."""


def zone_status(
    zone: Zone,
    acceptance: Acceptance,
    observed: Observed | None,
    seen: Seen,
    time: str,
    pause: str = "",
    blocked: Refusal | None = None,
    lacks_name: str = "",
) -> ZoneStatus:
    """Return the status of `zone`.

    `seen`: observation of its cluster; `time`: now, RFC 3339; `pause`: why the zone is paused, a
    sentence; `blocked`: why decisions about it cannot be written; `lacks_name`: why there is
    no Service yet at which clients start, a sentence.

    `observedGeneration` is that of the spec that `observed` was made with: it does not change while
    the zone is paused or its cluster is not led.  While it is not led, phase and conditions are
    unknown, and no partition is counted but in `total`: clients may be refused.  If no master has
    observed a zone that was placed, its addresses are those of the status before.
    """
    accepted: Fact = (
        names.CONDITION_ACCEPTED,
        acceptance.reason == names.REASON_ACCEPTED,
        acceptance.reason,
        acceptance.message,
    )
    is_waiting = bool(pause or seen.problem)
    generation = zone.status.observed_generation if is_waiting else zone.metadata.generation

    def conditions(facts: Sequence[Fact]) -> list[Condition]:
        told = [accepted, *facts, *_paused(pause), _blocked(blocked)]
        return _conditions(told, zone.status.conditions, generation, time)

    unknown = _unknown_facts(acceptance, seen.problem or seen.recovery)
    if observed is None:
        phase = _unled_phase(zone, acceptance)
        known = zone.status if phase == PHASE_UNKNOWN else ZoneStatus()  # agents may serve on
        return ZoneStatus(
            observed_generation=generation,
            zone_id=zone.status.zone_id,
            phase=phase,
            data_nodes=known.data_nodes,
            ports=known.ports,
            port=zone.status.port,
            endpoints=known.endpoints,
            external_endpoints=known.external_endpoints,
            partitions=ZonePartitions(total=known.partitions.total),
            conditions=conditions(unknown),
            last_day=zone.status.last_day,
            placed_uid=zone.status.placed_uid,
            set_aside=known.set_aside,
        )
    if seen.problem:
        observed = _without_states(observed)
    hosts = {node.name: node.client_host for node in seen.status.nodes}
    outside = {node.name: node.external_host for node in seen.status.nodes}
    return ZoneStatus(
        observed_generation=generation,
        zone_id=observed.uid,
        phase=_phase(zone, observed, lacks_name),
        data_nodes=list(observed.data_nodes),
        ports=dict(sorted(observed.ports.items())),
        port=observed.port,
        endpoints=_endpoints(hosts, observed.ports),
        external_endpoints=_endpoints(outside, observed.external_ports),
        partitions=ZonePartitions(
            total=observed.partitions,
            available=observed.available,
            degraded=observed.degraded,
            unavailable=observed.unavailable,
            read_only=observed.read_only,
            lost=observed.lost,
        ),
        under_replicated={str(short): count for short, count in observed.missing_copies.items()},
        migrations=ZoneMigrations(
            running=observed.migrations_running,
            queued=observed.migrations_queued,
            planned=observed.planned,
            bytes_left=sum(
                max(each.bytes_total - each.bytes_done, 0) for each in observed.migrations
            ),
        ),
        conditions=conditions(
            unknown if seen.problem else _zone_facts(zone, acceptance, observed, lacks_name)
        ),
        last_day=zone.status.last_day,
        placed_uid=zone.metadata.uid if observed.placed else zone.status.placed_uid,
        timers=[_timer(timer) for timer in observed.timers],
        set_aside={node: copies for node, (copies, _) in observed.aside.items()},
    )


def _unled_phase(zone: Zone, acceptance: Acceptance) -> str:
    """Return the phase of a zone that no master has observed."""
    if zone.metadata.deletion_timestamp is not None:
        return "Deleting"
    may_serve = bool(zone.status.placed_uid) and acceptance.record is not None
    return PHASE_UNKNOWN if may_serve else "Pending"


def _without_states(observed: Observed) -> Observed:
    """Return what is left of an observation once no master leads: the zone and its addresses."""
    return msgspec.structs.replace(
        observed,
        phase="Deleting" if observed.phase == "Deleting" else PHASE_UNKNOWN,
        available=0,
        degraded=0,
        unavailable=0,
        read_only=0,
        lost=0,
        missing_copies={},
        migrations_running=0,
        migrations_queued=0,
        planned=0,
        migrations=(),
        timers=(),
    )


def _phase(zone: Zone, observed: Observed, lacks_name: str) -> str:
    if observed.phase != "Available":
        return observed.phase
    return "Pending" if lacks_name else "Restoring" if _restoring(zone, observed) else "Available"


def _restoring(zone: Zone, observed: Observed) -> Restoring | None:
    """Return what is being imported into the zone, or was into an earlier one with its data."""
    metadata = zone.metadata
    return begun_import(metadata.annotations, metadata.uid, observed.importing)


def _noted(zone: Zone) -> Restoring | None:
    return Restoring.parse(zone.metadata.annotations.get(RESTORING, ""))


def _not_whole(zone: Zone, begun: Restoring) -> str:
    """Return why a zone is not Available that may have only a part of the rows."""
    name = zone.metadata.name
    if _noted(zone) is not None:
        return (
            f"rows of {begun.place} are being imported, and the zone has not all of them; after"
            f" an interruption {_import_again(begun, name)}"
        )
    again = f"run `quorate import {quote(begun.place)} {name} --into-non-empty`"
    by = "`quorate import`"
    if begun.is_of_restore:
        again = f"create a ZoneRestore of {begun.place}"
        by = f"the ZoneRestore with the uid {begun.run}"
    return (
        f"its data is of an earlier Zone {name}, into which {by} was importing {begun.place}, and"
        f" has perhaps only a part of the rows: {again}, or delete the zone with its data"
        " (deletionPolicy: Delete)"
    )


def _import_again(begun: Restoring, zone: str) -> str:
    """Return how an import goes on: the command needs the embedded operator."""
    if begun.is_of_restore:
        return "create another ZoneRestore of it"
    return f"run `quorate import {quote(begun.place)} {zone}` again"


def _timer(timer: TimerStatus) -> ZoneTimer:
    due = rfc3339(timer.due_ms) if timer.due_ms is not None else ""
    return ZoneTimer(kind=timer.kind, nodes=list(timer.nodes), due=due)


def _endpoints(hosts: Mapping[str, str], ports: Mapping[str, int]) -> list[str]:
    """Return host:port of each agent that has both, sorted by agent name."""
    told = [(hosts.get(node, ""), port) for node, port in sorted(ports.items())]
    return [join_address(host, port) for host, port in told if host]


def refused_zone_status(generation: int, message: str, time: str, before: ZoneStatus) -> ZoneStatus:
    """Return the status of a Zone that cannot be read: the API server has another version's CRD.

    `before`: the last written status; which data the zone has, and that it was placed, is never
    forgotten.
    """
    accepted: Fact = (names.CONDITION_ACCEPTED, False, names.REASON_INVALID, message)
    return ZoneStatus(
        observed_generation=generation,
        zone_id=before.zone_id,
        phase="Pending",
        conditions=_conditions([accepted], before.conditions, generation, time),
        last_day=before.last_day,
        placed_uid=before.placed_uid,
    )


def cluster_status(
    cluster: StorageCluster,
    seen: Seen,
    identity: str,
    time: str,
    pause: str = "",
    dialed: Sequence[str] = (),
    retained: Sequence[str] = (),
    managed: ManagedView | None = None,
) -> StorageClusterStatus:
    """Return the status of `cluster`.

    `identity`: of the process that leads it; `pause`: why it is paused; `dialed`: the addresses in
    force while it is paused or managed; `retained`: zones without an object; `managed`: what is
    known of managed agents.
    """
    observed, problem, unreached, blocked, drains, kept, _ = seen
    generation = cluster.status.observed_generation if pause else cluster.metadata.generation
    online = sum(node.online for node in observed.nodes)
    is_managed = cluster.spec.managed is not None
    addresses = list(dialed) if pause or is_managed else list(cluster.spec.dialed)
    named = len(addresses)
    if problem:
        ready: Fact = (names.CONDITION_READY, False, names.REASON_NOT_LED, problem)
    elif blocked is not None:
        ready = (names.CONDITION_READY, False, names.CONDITION_BLOCKED, blocked.sentence)
    elif managed is not None and managed.pods:
        pod = managed.pods[0]
        more = f", and {len(managed.pods) - 1} more" if len(managed.pods) > 1 else ""
        sentence = f"{online} of {named} agents are online; pod {pod.name}: {pod.reason}"
        ready = (names.CONDITION_READY, False, "PodsFailing", f"{sentence}: {pod.message}{more}")
    elif unreached:
        address, why = next(iter(sorted(unreached.items())))
        more = f", and {len(unreached) - 1} more" if len(unreached) > 1 else ""
        sentence = f"{online} of {named} agents are online; {address}: {why}{more}"
        ready = (names.CONDITION_READY, False, "AgentsMissing", sentence)
    else:
        ready = (names.CONDITION_READY, True, "AgentsOnline", f"all {named} agents are online")
    facts = [
        ready,
        *_paused(pause),
        _blocked(blocked),
        *agent_conditions(cluster, managed, kept),
        *_drained(cluster, drains),
        *_unrecorded(cluster, unrecorded_zones(observed.nodes)),
    ]
    return StorageClusterStatus(
        observed_generation=generation,
        members=[
            ClusterMember(
                name=node.name,
                store_id=node.store,
                address=node.address,
                external_host=node.external_host,
                state=node.state,
                primaries=node.primaries,
                owners=node.owners,
            )
            for node in observed.nodes
        ],
        online=f"{online}/{named}",
        addresses=addresses,
        master=ClusterMaster(identity=identity, term=observed.master_term),
        replicas=len(managed.agents.staying) if managed is not None else None,
        selector=selector_text(cluster.metadata.name) if is_managed else None,
        pods=managed.pods if managed is not None else [],
        retained_zones=list(retained),
        drained=list(drains.asked),
        emptied=list(drains.emptied),
        conditions=_conditions(facts, cluster.status.conditions, generation, time),
    )


def _drained(cluster: StorageCluster, drains: DrainView) -> list[Fact]:
    """Make the condition that the agents of `spec.drainAgents` hold nothing."""
    if not cluster.spec.drain_agents:
        return []
    name = names.CONDITION_AGENTS_DRAINED
    refused = [agent for agent, _ in drains.refused]
    moving = [
        f"{agent}: zones {', '.join(zones)}" for agent, zones in drains.held if agent not in refused
    ]
    said = [why for _, why in drains.refused]
    if moving:
        said.append(f"copies still have to move to other agents: {'; '.join(moving)}")
    if said:
        return [(name, False, "Refused" if refused else "Draining", "; ".join(said))]
    if drains.unknown:
        unknown = ", ".join(drains.unknown)
        return [(name, True, "Drained", f"no copies are left; not registered: {unknown}")]
    return [(name, True, "Drained", "no copies are left on the agents of spec.drainAgents")]


def _unrecorded(cluster: StorageCluster, zones: str) -> list[Fact]:
    """Make the condition that agents have data of `zones`, of which there is no record."""
    if not zones:
        return []
    way_out = (
        f"`kubectl annotate masterterm {cluster.metadata.name} {names.ANNOTATION_RECOVERING}=true`,"
        " then restart the operator: status.retainedZones names them, and a Zone of such a name has"
        " that data; deleted with deletionPolicy: Delete, it erases it"
    )
    why = f"agents have data of zones without a record: {zones}: {way_out}"
    return [(names.CONDITION_ZONES_UNRECORDED, True, "DataFound", why)]


def _paused(pause: str) -> list[Fact]:
    return [(names.CONDITION_PAUSED, True, names.REASON_PAUSED, pause)] if pause else []


def _unknown_facts(acceptance: Acceptance, problem: str) -> list[Fact]:
    """Make the conditions of a zone that is not led.  `problem`: why, if known."""
    is_wanted = acceptance.record is not None
    why = (problem or "not yet led") if is_wanted else acceptance.message
    reason = names.REASON_NOT_LED if is_wanted else acceptance.reason
    return [
        (condition, None if is_wanted else False, reason, why)
        for condition in (names.CONDITION_AVAILABLE, names.CONDITION_FULLY_REPLICATED)
    ]


STUCK_SHOWN_MAX = 3
INTENTS_SHOWN_MAX = 3


def _stuck_sentence(stuck: Sequence[StuckMigration]) -> str:
    if not stuck:
        return "no step of the rebalance fails again and again"
    told = [each.sentence for each in stuck[:STUCK_SHOWN_MAX]]
    more = len(stuck) - len(told)
    told += [f"and {more} more"] if more else []
    return f"{'; '.join(told)}. Owners are unchanged; each is tried again within a minute"


def _planned_sentence(observed: Observed) -> str:
    """Return the first partitions that have more to do than is under way, or ""."""
    told = [intent.sentence for intent in observed.intents[:INTENTS_SHOWN_MAX]]
    more = observed.planned - len(told)
    told += [f"and {more} more partitions"] if told and more > 0 else []
    return f"; planned: {'; '.join(told)}" if told else ""


def _data_loss(zone: Zone, observed: Observed) -> list[Fact]:
    """Make the condition that partitions narrowed to what was left.

    In STRONG_CONSISTENCY a zone has it only while it is True: only a person can decide that.
    """
    name, lost = names.CONDITION_DATA_LOSS_ACCEPTED, observed.data_loss
    if lost:
        return [(name, True, "MajorityLost", lost)]
    if zone.spec.consistency_mode is not ConsistencyMode.HIGH_AVAILABILITY:
        return []
    return [(name, False, "AllVotersBack", "no partition is narrowed to one voter")]


def _zone_facts(
    zone: Zone, acceptance: Acceptance, observed: Observed, lacks_name: str
) -> list[Fact]:
    is_kept = observed.phase != "Deleting"
    serves = is_kept and observed.available + observed.degraded == observed.partitions
    begun = _restoring(zone, observed)
    available = serves and not lacks_name and begun is None
    if available:
        why, sentence = "AllServing", "every partition has a serving primary"
    elif serves and begun is not None:
        why, sentence = "Restoring", _not_whole(zone, begun)
    elif serves:
        why, sentence = "ServiceMissing", f"every partition serves; {lacks_name}"
    else:
        why, sentence = observed.phase, observed.sentence
    replicated = is_kept and observed.available == observed.partitions
    in_force = acceptance.record
    copies = in_force.replicas if in_force is not None else zone.spec.replicas
    moving = observed.migrations_running + observed.migrations_queued > 0
    violated = [f"{domain} ({count})" for domain, count in observed.spread_violations]
    spread = (
        f"partitions with two copies in one failure domain: {', '.join(violated)}: start agents in "
        "more domains"
        if violated
        else "no two copies of a partition are in one failure domain"
    )
    full = "; ".join(f"agent {node}: {why}" for node, why in observed.full.items())
    refused = "; ".join(f"agent {node}: {reason}" for node, reason in observed.refusals)
    return [
        (names.CONDITION_AVAILABLE, available, why, sentence),
        (
            names.CONDITION_FULLY_REPLICATED,
            replicated,
            "AllCopies" if replicated else "CopiesMissing",
            f"every partition has {copies} copies" if replicated else observed.sentence,
        ),
        (
            names.CONDITION_REBALANCING,
            moving,
            "Migrating" if moving else "AtRest",
            f"{observed.migrations_running} migrations are running, {observed.migrations_queued} "
            f"are queued{_planned_sentence(observed)}"
            if moving
            else "nothing is being moved",
        ),
        (
            names.CONDITION_REBALANCE_STUCK,
            bool(observed.stuck),
            "MigrationsFail" if observed.stuck else "NothingFails",
            _stuck_sentence(observed.stuck),
        ),
        *_data_loss(zone, observed),
        (
            names.CONDITION_SPREAD_VIOLATED,
            bool(violated),
            "DomainsShared" if violated else "Spread",
            spread,
        ),
        (
            names.CONDITION_STORAGE_FULL,
            bool(full),
            "NoRoom" if full else "Room",
            f"commands that need room are refused; {full}; {_room_way_out(zone)}"
            if full
            else "every agent has room",
        ),
        (
            names.CONDITION_REFUSED,
            bool(refused),
            "CannotOpen" if refused else "AllOpen",
            refused or "every agent that should have copies can open the zone",
        ),
        (
            names.CONDITION_TOO_FEW_DATA_NODES,
            bool(observed.misfits),
            "TooFewMatch" if observed.misfits else "EnoughMatch",
            observed.misfits or "enough agents match the zone's filter and storage profile",
        ),
        _ownership(observed),
    ]


def _blocked(refusal: Refusal | None) -> Fact:
    if refusal is None:
        return (names.CONDITION_BLOCKED, False, "Written", "all decisions are written")
    sentence = f"decisions cannot be written: {refusal.sentence}"
    if refusal.reason == MASTER_FAILED:
        sentence = (
            f"nothing is decided for now: the master was {refusal.sentence}; agents keep serving, "
            "and a master leads again soon; if this lasts, report it with the operator's log"
        )
    return (names.CONDITION_BLOCKED, True, refusal.reason, sentence)


def _ownership(observed: Observed) -> Fact:
    """Make the condition about lost or set-aside rows, awaited agents and the way out."""
    name, said = names.CONDITION_OWNERSHIP_DAMAGED, observed.ownership
    if observed.rebuilding:
        waits = said or "agents are being asked for their data"
        return name, True, "Rebuilding", f"rows are being rebuilt from the agents' data: {waits}"
    if said:
        return name, True, "RowsSetAside", said
    return name, False, "Whole", "every partition has its row"


def _room_way_out(zone: Zone) -> str:
    if zone.spec.storage is StorageKind.PERSISTENT:
        return "free space on these disks, delete keys or add agents; writes then resume"
    return "delete keys or add agents; writes then resume"


def _conditions(
    facts: Sequence[Fact], previous: Sequence[Condition], generation: int, time: str
) -> list[Condition]:
    before = {condition.type: condition for condition in previous}
    made = []
    for kind, is_true, reason, message in facts:
        status = "Unknown" if is_true is None else str(is_true)
        known = before.get(kind)
        unchanged = known is not None and known.status == status
        made.append(
            Condition(
                type=kind,
                status=status,
                reason=reason,
                message=message,
                last_transition_time=known.last_transition_time if known and unchanged else time,
                observed_generation=generation,
            )
        )
    return made
