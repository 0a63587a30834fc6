"""Reads the state of clusters from their custom resources.

It is the same ClusterState that the embedded operator answers, so that the same views show it.  The
operator keeps some counts to itself; UNKNOWN names them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from quorate.facts.addresses import join_address
from quorate.facts.topology import NodeRecord
from quorate.protocol.status import (
    PHASE_UNKNOWN,
    MigrationStatus,
    NodeStatus,
    TimerStatus,
    ZoneStatus,
)
from quorate.wire.jobs.known_history import history_of
from quorate.wire.schema.resource import Condition
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate.wire.zone import ZoneStatus as Declared
from quorate_cli.kubectl.objects import StoredRows
from quorate_cli.objects.cluster_state import ClusterState, ZoneBackups

UNKNOWN = (
    "unavailable_partitions",
    "migrations_done",
    "migrations_failed",
    "migrations_cancelled",
    "bytes_moved",
    "bytes_wasted",
    "failovers",
    "full_copies",
    "full",
    "refusals",
    "aside",
    "spread_violations",
    "placed",
    "intents",
    "importing",
)
"""Fields of a ZoneStatus that no custom resource has; conditions tell some of them in words."""
TOLD_WHEN_TRUE = (
    "StorageFull",
    "RefusedByAgents",
    "SpreadViolated",
    "RebalanceStuck",
    "Rebalancing",
    "OwnershipDamaged",
    "TooFewDataNodes",
    "ZonesUnrecorded",
)
TOLD_OF_BOTH = ("Paused", "Blocked")
TOLD_WHEN_FALSE = ("Accepted", "AgentsUpdated", "AgentsDrained")


class Found(NamedTuple):
    """One cluster and its namespace."""

    namespace: str
    state: ClusterState


def cluster_state(
    cluster: StorageCluster,
    zones: Sequence[Zone],
    nodes: Mapping[str, NodeRecord],
    rows: Mapping[str, StoredRows],
    operator_problem: str = "",
    scheduled: Collection[str] | None = None,
) -> ClusterState:
    """Return the state of the cluster.

    `zones`: its own; `nodes`: registrations by agent; `rows`: the rows that were read, by the id of
    the zone's data; `operator_problem`: why nothing is decided; `scheduled`: zones of which a
    schedule makes backups, None: schedules cannot be read.
    """
    status = cluster.status
    ready = _condition(status.conditions, "Ready")
    not_led = ready is not None and ready.reason == "NotLed"
    problem = operator_problem or (ready.message if ready is not None and not_led else "")
    notes = [] if ready is None or ready.status == "True" or not_led else [ready.message]
    notes += _notes("", status.conditions)
    for zone in zones:
        notes += _notes(f"zone {zone.metadata.name}: ", zone.status.conditions)
    return ClusterState(
        cluster.metadata.name,
        status.master.identity,
        problem,
        status.master.term,
        tuple(_node(cluster, name, nodes) for name in _names(cluster, nodes)),
        tuple(_zone(zone, nodes, rows.get(zone.status.zone_id)) for zone in zones),
        tuple(notes),
        tuple(_backups(zone, scheduled) for zone in zones),
    )


def needs_rows(status: Declared) -> bool:
    """Return whether rows tell more of a zone than its status: lost partitions, migrations."""
    is_unknown = status.phase == PHASE_UNKNOWN
    return is_unknown or bool(status.migrations.running or status.partitions.unavailable)


def state_json(found: Iterable[Found], not_running: Mapping[str, str]) -> str:
    """Return the JSON of `status`: the keys of docs/json.md that custom resources know."""
    clusters: list[dict[str, Any]] = []
    for namespace, state in found:
        made = {"namespace": namespace, **msgspec.to_builtins(state)}
        for zone in made["zones"]:
            for field in UNKNOWN:
                del zone[field]
        for node in made["nodes"]:
            del node["unrecorded"]  # the condition ZonesUnrecorded tells it in words
        clusters.append(made)
    whole = {"clusters": clusters, "not_running": dict(not_running)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def _backups(zone: Zone, scheduled: Collection[str] | None) -> ZoneBackups:
    name, told = zone.metadata.name, history_of(zone.status, "")
    is_scheduled = name in scheduled if scheduled is not None else None
    return ZoneBackups(name, told.last_backup, told.last_restore, is_scheduled)


def _names(cluster: StorageCluster, nodes: Mapping[str, NodeRecord]) -> list[str]:
    return sorted({*nodes, *(member.name for member in cluster.status.members)})


def _node(cluster: StorageCluster, name: str, nodes: Mapping[str, NodeRecord]) -> NodeStatus:
    record = nodes.get(name)
    member = next((each for each in cluster.status.members if each.name == name), None)
    left = record.left_since_ms if record is not None else None
    online = record is not None and left is None
    state = member.state if member is not None else "Online" if online else "Offline"
    return NodeStatus(
        name,
        record.store if record is not None else member.store_id if member is not None else "",
        record.incarnation if record is not None else 0,
        online,
        state,
        _address(record) if record is not None else member.address if member is not None else "",
        record.failure_domain if record is not None else "",
        member.primaries if member is not None else 0,
        member.owners if member is not None else 0,
        left,
        record.client_host if record is not None else "",
        attributes=record.attributes if record is not None else {},
        storage_profiles=record.storage_profiles if record is not None else (),
        draining=record is not None and record.draining,
    )


def _wall_ms(time: str) -> int | None:
    return int(datetime.fromisoformat(time).timestamp() * 1000) if time else None


def _address(record: NodeRecord) -> str:
    return join_address(record.host, record.peer_port)


def _zone(zone: Zone, nodes: Mapping[str, NodeRecord], rows: StoredRows | None) -> ZoneStatus:
    status = zone.status
    told = status.partitions
    damaged = _condition(status.conditions, "OwnershipDamaged")
    is_damaged = damaged is not None and damaged.status == "True"
    lost = rows.lost(nodes) if rows is not None else ()
    migrations = _migrations(rows)
    is_unknown = status.phase == PHASE_UNKNOWN
    return ZoneStatus(
        uid=status.zone_id or zone.metadata.uid,
        name=zone.metadata.name,
        phase=status.phase,
        sentence=sentence(zone),
        partitions=told.total or zone.spec.partitions,
        available=told.available,
        degraded=told.degraded,
        unavailable=told.unavailable,
        read_only=told.read_only,
        migrations_running=len(migrations) if is_unknown else status.migrations.running,
        migrations_queued=status.migrations.queued,
        migrations_done=0,
        migrations_failed=0,
        bytes_moved=0,
        full_copies=0,
        ports=dict(status.ports),
        data_nodes=tuple(status.data_nodes),
        spread_violations=(),
        migrations=migrations,
        planned=status.migrations.planned,
        timers=tuple(TimerStatus(t.kind, tuple(t.nodes), _wall_ms(t.due)) for t in status.timers),
        missing_copies={int(short): count for short, count in status.under_replicated.items()},
        lost=len(lost),
        lost_partitions=lost[:100],
        rebuilding=is_damaged and damaged is not None and damaged.reason == "Rebuilding",
        ownership=damaged.message if is_damaged and damaged is not None else "",
        port=status.port,
    )


def sentence(zone: Zone) -> str:
    """Return what is waited for, from the first condition that is not as it should be."""
    for kind in ("Accepted", "Available", "FullyReplicated"):
        condition = _condition(zone.status.conditions, kind)
        if condition is None:
            return "the operator has not processed it yet"
        if condition.status != "True":
            return condition.message
    return "every partition has all its copies"


def _migrations(rows: StoredRows | None) -> tuple[MigrationStatus, ...]:
    if rows is None:
        return ()
    return tuple(
        MigrationStatus(
            row.partition,
            row.active.kind.value,
            row.active.source,
            row.active.destination.node if row.active.destination is not None else None,
            "under way",
            version=row.version,
        )
        for row in rows.rows
        if row.active is not None
    )


def _condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    return next((each for each in conditions if each.type == kind), None)


def _notes(about: str, conditions: Sequence[Condition]) -> list[str]:
    """Return the messages of conditions that need attention and that no other field has."""
    return [
        f"{about}{each.message}"
        for each in conditions
        if (each.type in (*TOLD_WHEN_TRUE, *TOLD_OF_BOTH) and each.status == "True")
        or (each.type in TOLD_WHEN_FALSE and each.status == "False")
    ]
