"""The custom resource PartitionTable, which stores ownership.

A zone has one *head*, which holds the zone as the master accepted it, and one object per shard of
64 partitions, which holds their rows.  Rows are keyed by partition, so the API server itself
refuses a version or a term that goes back.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from quorate.facts.partition_row import (
    LINKS_MAX,
    VOTERS_MAX,
    Link,
    Migration,
    MigrationKind,
    PartitionRow,
    Reset,
)
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import (
    NEVER_MS,
    RESET_MS,
    SCALE_DOWN_MS,
    ConsistencyMode,
    DataNodes,
    Planner,
    StorageKind,
    SyncWrites,
    WriteMode,
    ZoneRecord,
)
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.wire.schema.resource import Integer, Part, Resource, Rule, Text, immutable
from quorate.wire.zone import ObjectName

Name = Annotated[Text, Field(max_length=253)]
Natural = Annotated[Integer, Field(ge=0)]
INDEXES_MAX = 16
NULL_NODE = ""
"""A replica index that nobody holds (the core's None): lists of the API hold strings only."""


OWNERS_RULES: tuple[Rule, ...] = (
    Rule(
        "replicas",
        "self.replicas.all(n, n == '' || (self.replicas.exists_one(m, m == n) && "
        "self.voters.exists(v, v.node == n)))",
        "each owner is named once, and is one of the voters: write the owners of the row",
        lambda new, _: _owners_are_voters(new),
    ),
    Rule(
        "voters",
        "self.voters.all(v, self.voters.exists_one(w, w.node == v.node))",
        "a node votes once: write the voters of the row",
        lambda new, _: len({voter.node for voter in new.voters}) == len(new.voters),
    ),
)


class StoredVoter(Part):
    """A member of a partition's quorum."""

    node: Name
    """The agent's name."""
    store_id: Name
    """Its store: another one is another voter."""


class StoredHolder(Part):
    """One process incarnation of one store."""

    node: Name
    """The agent's name."""
    store_id: Name
    """Its store."""
    incarnation: Natural
    """Which start of the agent over this store."""


class StoredMigration(Part):
    """The migration under way."""

    migration_id: Name
    """Names the migration."""
    kind: MigrationKind
    """Kind of the migration."""
    source: Name | None = None
    """The agent whose copy moves."""
    destination: StoredHolder | None = None
    """The process that gets the copy."""
    replicas: Annotated[list[Name], Field(max_length=INDEXES_MAX)]
    """The owners after the migration, as in the row."""
    voters: Annotated[list[StoredVoter], Field(max_length=VOTERS_MAX)]
    """The voters after the migration."""

    rules: ClassVar[tuple[Rule, ...]] = OWNERS_RULES


class StoredVoterSet(Part):
    """Voters of which a quorum must agree by themselves."""

    voters: Annotated[list[StoredVoter], Field(max_length=VOTERS_MAX)]
    """The voters of this set."""


class StoredLink(Part):
    """Voters before a reset."""

    ended: Natural
    """The term of the reset that ended their part of the history."""
    voters: Annotated[list[StoredVoter], Field(max_length=VOTERS_MAX)]
    """The voters."""
    needed: Annotated[Integer, Field(ge=0, le=VOTERS_MAX)] = 0
    """How many of those that the reset left must be heard after a restart of all."""


class StoredReset(Part):
    """A reset of a partition, which narrowed its voters to one."""

    term: Natural
    """The term that it began."""
    others: Annotated[list[StoredVoter], Field(max_length=VOTERS_MAX)]
    """The stores that voted before, have not voted since and keep their copies."""
    links: Annotated[list[StoredLink], Field(max_length=LINKS_MAX)] | None = None
    """The voters before each reset since the partition last had all its copies, oldest first."""


class StoredRow(Part):
    """One partition: who owns it, who votes."""

    partition: Annotated[Integer, Field(ge=0, le=16383)]
    """Its number, from 0."""
    version: Natural
    """Counts the changes of the row."""
    term: Natural
    """The version under which the primary was activated."""
    primary: StoredHolder | None = None
    """The process that may serve the partition; absent: none."""
    replicas: Annotated[list[Name], Field(max_length=INDEXES_MAX)]
    """Online owners by replica index, 0 the primary; "" where there is none."""
    voters: Annotated[list[StoredVoter], Field(max_length=VOTERS_MAX)]
    """The nodes that count for a majority, online or not."""
    active_migration: StoredMigration | None = None
    """The migration under way; absent: none."""
    voter_sets: Annotated[list[StoredVoterSet], Field(max_length=2)] | None = None
    """Of a row that was rebuilt under a migration, until its first activation: the voters before
    the migration and those after it.  A quorum of each must agree.  A store that is gone for good,
    or that was to leave, may stand here alone."""

    reset: StoredReset | None = None
    """The last time that the voters were forced to one survivor; absent: never."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "version",
            "self.version >= oldSelf.version && self.term >= oldSelf.term",
            "versions and terms never decrease: read the row again",
            lambda new, old: new.version >= old.version and new.term >= old.term,
        ),
        Rule(
            "term",
            "self.term <= self.version",
            "a term is the version under which its primary was activated: write the row's term",
            lambda new, _: new.term <= new.version,
        ),
        *OWNERS_RULES,
        Rule(
            "primary",
            "!has(self.primary) || (size(self.replicas) > 0 && (self.replicas[0] == '' || "
            "self.replicas[0] == self.primary.node))",
            "replica index 0 is the primary or empty: write the primary's node there",
            lambda new, _: (
                new.primary is None
                or (bool(new.replicas) and new.replicas[0] in (NULL_NODE, new.primary.node))
            ),
        ),
        Rule(
            "voterSets",
            "!has(self.voterSets) || (!has(self.activeMigration) && size(self.voterSets) == 2 && "
            "self.voters.all(v, self.voterSets.exists(s, s.voters.exists(w, w.node == v.node))))",
            "there are two sets of voters or none, each voter is in one, and no migration is "
            "active: write the sets of the row",
            lambda new, _: new.voter_sets is None or _are_two_sets(new, new.voter_sets),
        ),
    )


class StoredDataNodes(Part):
    """The agents that may hold the zone's copies, as its timers left them."""

    nodes: list[Name]
    """Their names."""
    revision: Natural = 0
    """The revision of the topology that they came from."""
    filter: Text = ""
    """`dataNodesFilter` of the Zone by which they were chosen."""
    storage_profile: Text = ""
    """`storageProfile` of the Zone by which they were chosen."""


class AcceptedZone(Part):
    """The zone as the master accepted it: what its agents work with."""

    partitions: Natural
    """As in the Zone."""
    replicas: Natural
    """As in the Zone."""
    storage: StorageKind
    """As in the Zone."""
    sync_writes: SyncWrites
    """As in the Zone."""
    max_memory_bytes: Natural = 0
    """`maxMemory` of the Zone in bytes; 0: no limit."""
    ports: dict[str, Integer] = Field(default_factory=dict)
    """Client port of the zone per agent."""
    deleting: bool = False
    """The data is being deleted."""
    planner: Planner = Planner.MINIMAL
    """As in the Zone."""
    placed: bool = False
    """Every partition has had a row.  A row that is missing now was lost: it is not placed anew."""
    port: Annotated[Integer, Field(ge=0, le=65535)] = 0
    """The client port that the zone was given, for agents that take theirs from the master."""
    external_ports: dict[str, Integer] = Field(default_factory=dict)
    """The port at which clients of an external listener reach each agent."""
    scale_down_seconds: Natural = SCALE_DOWN_MS // 1000
    """How long an agent that has left is waited for before a spare takes its place.  Never:
    9007199254740."""
    scale_up_seconds: Natural = 0
    """How long after it joined an agent gets copies.  Never: 9007199254740."""
    data_nodes: StoredDataNodes | None = None
    """The zone's data nodes; absent before its first placement."""
    start_empty: bool = False
    """Partitions whose every copy is lost begin again without data."""
    filter: Text = ""
    """`dataNodesFilter` of the Zone; empty: all agents match."""
    storage_profile: Text = ""
    """`storageProfile` of the Zone; empty: any storage."""
    consistency_mode: ConsistencyMode = ConsistencyMode.STRONG_CONSISTENCY
    """As in the Zone."""
    reset_seconds: Natural = RESET_MS // 1000
    """HIGH_AVAILABILITY: how long a lost majority is waited for.  Never: 9007199254740."""
    write_mode: WriteMode = WriteMode.FULL_SYNC
    """As in the Zone."""
    isolation_seconds: Natural = NEVER_MS // 1000
    """HIGH_AVAILABILITY: how long a primary serves without contact to the operator.  Never:
    9007199254740."""
    importing: Text = ""
    """The import of an export that has begun and has not ended well: the uid of the Zone that it is
    noted at, and the note; empty: none."""


class ZoneRef(Part):
    """The zone, and which one of that name."""

    name: Name
    """The Zone's name."""
    uid: Name
    """The id of its data: `status.zoneId` of the Zone."""


class PartitionTableSpec(Part):
    """Written by the operator only."""

    cluster_ref: ObjectName
    zone_ref: ZoneRef
    accepted: AcceptedZone | None = None
    """Head only."""
    shard: Annotated[Integer, Field(ge=0, le=255)] | None = None
    """Which 64 partitions; absent in the head."""
    rows: (
        Annotated[
            list[StoredRow],
            Field(
                max_length=SHARD_PARTITIONS,
                json_schema_extra={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["partition"],
                },
            ),
        ]
        | None
    ) = None
    """The shard's rows in order of partition; absent in the head."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "shard",
            "has(self.accepted) != has(self.shard)",
            "a PartitionTable has either a shard's rows or the accepted zone: write one of them",
            lambda new, _: (new.accepted is None) != (new.shard is None),
        ),
        immutable("zoneRef", "rows belong to one zone; create another PartitionTable"),
        immutable("shard", "rows belong to one shard; create another one", optional=True),
    )


class PartitionTable(Resource):
    """A shard of a zone's rows, or their head.  Written by the operator; users only read it."""

    plural = "partitiontables"
    short_name = "pt"
    printer_columns = (
        ("Zone", "string", ".spec.zoneRef.name"),
        ("Shard", "integer", ".spec.shard"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )

    spec: PartitionTableSpec


def _owners_are_voters(row: "StoredRow | StoredMigration") -> bool:
    owners = [node for node in row.replicas if node]
    return len({*owners}) == len(owners) and {*owners} <= {voter.node for voter in row.voters}


def _are_two_sets(row: StoredRow, sets: list[StoredVoterSet]) -> bool:
    nodes = {voter.node for voter in row.voters}
    named = {voter.node for each in sets for voter in each.voters}
    return row.active_migration is None and len(sets) == 2 and nodes <= named


def stored_row(row: PartitionRow) -> StoredRow:
    """A row as it is stored."""
    return StoredRow(
        partition=row.partition,
        version=row.version,
        term=row.term,
        primary=_stored_holder(row.primary),
        replicas=[node or NULL_NODE for node in row.replicas],
        voters=_stored_voters(row.voters),
        active_migration=_stored_migration(row.active),
        voter_sets=[StoredVoterSet(voters=_stored_voters(each)) for each in row.sets] or None,
        reset=_stored_reset(row.reset),
    )


def partition_row(stored: StoredRow) -> PartitionRow:
    """A stored row as the core uses it."""
    return PartitionRow(
        stored.partition,
        stored.version,
        stored.term,
        _holder(stored.primary),
        tuple(node or None for node in stored.replicas),
        _voters(stored.voters),
        _migration(stored.active_migration),
        tuple(_voters(each.voters) for each in stored.voter_sets or ()),
        _reset(stored.reset),
    )


def accepted_zone(record: ZoneRecord) -> AcceptedZone:
    """A zone's record as the head stores it."""
    return AcceptedZone(
        partitions=record.partitions,
        replicas=record.replicas,
        storage=record.storage,
        sync_writes=record.sync_writes,
        max_memory_bytes=record.max_memory_bytes,
        ports=dict(record.ports),
        deleting=record.deleting,
        planner=record.planner,
        placed=record.placed,
        port=record.port,
        external_ports=dict(record.external_ports),
        scale_down_seconds=record.scale_down_ms // 1000,
        scale_up_seconds=record.scale_up_ms // 1000,
        data_nodes=_stored_data_nodes(record.data_nodes),
        start_empty=record.start_empty,
        filter=record.filter,
        storage_profile=record.storage_profile,
        consistency_mode=record.mode,
        reset_seconds=record.reset_ms // 1000,
        write_mode=record.write_mode,
        isolation_seconds=record.isolation_ms // 1000,
        importing=record.importing,
    )


def zone_record(zone: ZoneRef, accepted: AcceptedZone) -> ZoneRecord:
    """A stored head as the core uses it."""
    return ZoneRecord(
        zone.uid,
        zone.name,
        accepted.partitions,
        accepted.replicas,
        accepted.storage,
        accepted.sync_writes,
        accepted.max_memory_bytes,
        dict(accepted.ports),
        accepted.deleting,
        accepted.planner,
        placed=accepted.placed,
        port=accepted.port,
        external_ports=dict(accepted.external_ports),
        scale_down_ms=_timer_ms(accepted.scale_down_seconds),
        scale_up_ms=_timer_ms(accepted.scale_up_seconds),
        data_nodes=_data_nodes(accepted.data_nodes),
        start_empty=accepted.start_empty,
        filter=accepted.filter,
        storage_profile=accepted.storage_profile,
        mode=accepted.consistency_mode,
        reset_ms=_timer_ms(accepted.reset_seconds),
        write_mode=accepted.write_mode,
        isolation_ms=_timer_ms(accepted.isolation_seconds),
        importing=accepted.importing,
    )


def _timer_ms(seconds: int) -> int:
    return NEVER_MS if seconds >= NEVER_MS // 1000 else seconds * 1000


def _stored_data_nodes(known: DataNodes | None) -> StoredDataNodes | None:
    if known is None:
        return None
    return StoredDataNodes(
        nodes=list(known.nodes),
        revision=known.revision,
        filter=known.filter,
        storage_profile=known.storage_profile,
    )


def _data_nodes(stored: StoredDataNodes | None) -> DataNodes | None:
    if stored is None:
        return None
    return DataNodes(tuple(stored.nodes), stored.revision, stored.filter, stored.storage_profile)


def _stored_holder(holder: Holder | None) -> StoredHolder | None:
    if holder is None:
        return None
    return StoredHolder(node=holder.node, store_id=holder.store, incarnation=holder.incarnation)


def _holder(stored: StoredHolder | None) -> Holder | None:
    if stored is None:
        return None
    return Holder(stored.node, stored.store_id, stored.incarnation)


def _stored_voters(voters: tuple[Voter, ...]) -> list[StoredVoter]:
    return [StoredVoter(node=voter.node, store_id=voter.store) for voter in voters]


def _voters(stored: list[StoredVoter]) -> tuple[Voter, ...]:
    return tuple(Voter(voter.node, voter.store_id) for voter in stored)


def _stored_reset(reset: Reset | None) -> StoredReset | None:
    if reset is None:
        return None
    links = [
        StoredLink(ended=link.ended, voters=_stored_voters(link.voters), needed=link.needed)
        for link in reset.links
    ]
    return StoredReset(term=reset.term, others=_stored_voters(reset.others), links=links or None)


def _reset(stored: StoredReset | None) -> Reset | None:
    if stored is None:
        return None
    links = tuple(
        Link(each.ended, _voters(each.voters), each.needed) for each in stored.links or ()
    )
    return Reset(stored.term, _voters(stored.others), links)


def _stored_migration(migration: Migration | None) -> StoredMigration | None:
    if migration is None:
        return None
    return StoredMigration(
        migration_id=migration.migration_id,
        kind=migration.kind,
        source=migration.source,
        destination=_stored_holder(migration.destination),
        replicas=[node or NULL_NODE for node in migration.replicas],
        voters=_stored_voters(migration.voters),
    )


def _migration(stored: StoredMigration | None) -> Migration | None:
    if stored is None:
        return None
    return Migration(
        stored.migration_id,
        stored.kind,
        stored.source,
        _holder(stored.destination),
        tuple(node or None for node in stored.replicas),
        _voters(stored.voters),
    )
