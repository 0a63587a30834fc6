"""Events for users: every reason, and what it means.

This is the only catalogue: Kubernetes Events, metrics, `quorate events` and subscribers at agents
use the same words.  An event may be reported twice, or be missed when its reporter ends.  A new
listener, or one that may have missed an event, receives the present state instead.  Source:
docs/events.md.
"""

import datetime
import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Reason(enum.StrEnum):
    """The reason of an event."""

    NODE_JOINED = "NodeJoined"
    NODE_LEFT = "NodeLeft"
    MEMORY_GONE = "MemoryGone"
    NEW_STORE = "NewStore"
    ZONE_REFUSED = "ZoneRefused"
    ZONE_CREATED = "ZoneCreated"
    ZONE_DELETED = "ZoneDeleted"
    ZONE_REBALANCED = "ZoneRebalanced"
    DATA_NODES_CHANGED = "DataNodesChanged"
    STORAGE_FULL = "StorageFull"
    STORAGE_HAS_ROOM = "StorageHasRoom"
    WRITES_REFUSED = "WritesRefused"
    WRITES_TAKEN = "WritesTaken"
    MASTER_FAILED = "MasterFailed"
    EVICTIONS_REFUSED = "EvictionsRefused"
    CLAIM_TERMINATING = "ClaimTerminating"
    ROW_CHANGED = "RowChanged"
    PARTITION_LOST = "PartitionLost"
    DATA_LOSS_ACCEPTED = "DataLossAccepted"
    STARTED_EMPTY = "StartedEmpty"
    OWNERSHIP_LOST = "OwnershipLost"
    REBUILD_WAITS = "RebuildWaits"
    OWNERSHIP_REBUILT = "OwnershipRebuilt"
    ASIDE_DROPPED = "AsideDropped"
    ROW_SET_ASIDE = "RowSetAside"
    ROW_REPAIRED = "RowRepaired"
    ROW_DISCARDED = "RowDiscarded"
    RECORD_RESTORED = "RecordRestored"
    COPIES_AGREE = "CopiesAgree"
    COPIES_DIFFER = "CopiesDiffer"
    COPIES_UNPROVEN = "CopiesUnproven"
    EXPORTED = "Exported"
    EXPORT_FAILED = "ExportFailed"
    EXPORT_UNKNOWN = "ExportUnknown"
    EXPORTS_NOT_DELETED = "ExportsNotDeleted"
    BACKUP_SKIPPED = "BackupSkipped"
    IMPORTED = "Imported"
    IMPORT_FAILED = "ImportFailed"
    IMPORT_UNKNOWN = "ImportUnknown"
    REPAIR_PLANNED = "RepairPlanned"
    REPAIRED = "Repaired"
    REPAIR_INCOMPLETE = "RepairIncomplete"
    REPAIR_FAILED = "RepairFailed"
    REPAIR_UNKNOWN = "RepairUnknown"
    MIGRATION_STARTED = "MigrationStarted"
    MIGRATION_CAUGHT_UP = "MigrationCaughtUp"
    MIGRATION_SWITCHED = "MigrationSwitched"
    MIGRATION_FINISHED = "MigrationFinished"
    MIGRATION_REVERTED = "MigrationReverted"
    MIGRATION_CANCELLED = "MigrationCancelled"
    MIGRATION_FAILED = "MigrationFailed"


MEANINGS: Mapping[Reason, str] = {
    Reason.NODE_JOINED: "an agent joined, or is back",
    Reason.NODE_LEFT: "an agent is silent or its process has ended: failover begins",
    Reason.MEMORY_GONE: "an agent's process has surely ended: its copies in memory do not count",
    Reason.NEW_STORE: "an agent is back with a new store: the old store no longer counts",
    Reason.ZONE_REFUSED: "an agent cannot open the zone (with the reason); other zones continue",
    Reason.ZONE_CREATED: "a master leads the zone from now on",
    Reason.ZONE_DELETED: "the zone, its rows and its data were deleted",
    Reason.ZONE_REBALANCED: "after migrations, every copy is in its place",
    Reason.DATA_NODES_CHANGED: "other agents than before may hold the zone's copies",
    Reason.STORAGE_FULL: "an agent has no room for the zone: it refuses what needs room",
    Reason.STORAGE_HAS_ROOM: "an agent that had no room for the zone has room again",
    Reason.WRITES_REFUSED: "the metastore refuses writes (with the reason); nothing changes",
    Reason.WRITES_TAKEN: "the metastore accepts all writes again",
    Reason.MASTER_FAILED: "a defect ended the master; agents serve, a master leads again soon",
    Reason.EVICTIONS_REFUSED: "no agent's pod may be evicted for now; names what is waited for",
    Reason.CLAIM_TERMINATING: "the claim of an agent that runs is being deleted; says what to do",
    Reason.ROW_CHANGED: "a partition's row changed without a migration (with the reason)",
    Reason.PARTITION_LOST: "every store that held the partition is gone for good",
    Reason.DATA_LOSS_ACCEPTED: "a reset, or a change of primary in PRIMARY_SYNC, may lose writes",
    Reason.STARTED_EMPTY: "every copy of partitions was lost: they begin again without data",
    Reason.OWNERSHIP_LOST: "stored rows are missing, or older than the agents': they are rebuilt",
    Reason.REBUILD_WAITS: "rows cannot be rebuilt yet; names the agents that must report first",
    Reason.OWNERSHIP_REBUILT: "all missing rows are rebuilt",
    Reason.ASIDE_DROPPED: "an agent dropped rows that a reset left before their time, for room",
    Reason.ROW_SET_ASIDE: "a partition's stored row is invalid: nothing is decided for it",
    Reason.ROW_REPAIRED: "the partition's stored row is valid again, or was removed",
    Reason.ROW_DISCARDED: "a person had a row that was set aside rebuilt; it is replaced",
    Reason.RECORD_RESTORED: "another client deleted or changed a stored object: it was restored",
    Reason.COPIES_AGREE: "a DataValidation has ended: all copies agree",
    Reason.COPIES_DIFFER: "a DataValidation has proven that copies differ; names what differs",
    Reason.COPIES_UNPROVEN: "a DataValidation could not tell whether all copies agree (and why)",
    Reason.EXPORTED: "a ZoneBackup has ended: the zone is exported, and was read back",
    Reason.EXPORT_FAILED: "a ZoneBackup has ended without a good export (and why)",
    Reason.EXPORT_UNKNOWN: "a ZoneBackup has ended, and it is not known whether there is an export",
    Reason.EXPORTS_NOT_DELETED: "older exports of a ScheduledZoneBackup are still there (and why)",
    Reason.BACKUP_SKIPPED: "a ScheduledZoneBackup created no ZoneBackup at its time (and why)",
    Reason.IMPORTED: "a ZoneRestore has ended: the zone has every row of the export",
    Reason.IMPORT_FAILED: "a ZoneRestore has ended: nothing, or a part, was imported (and why)",
    Reason.IMPORT_UNKNOWN: "a ZoneRestore has ended, and its pods have told nothing",
    Reason.REPAIR_PLANNED: "a dry run of a ZoneRepair has ended: nothing is changed",
    Reason.REPAIRED: "a ZoneRepair has ended: every key of its plan is repaired",
    Reason.REPAIR_INCOMPLETE: "a ZoneRepair has ended, and keys of its plan are not repaired",
    Reason.REPAIR_FAILED: "a ZoneRepair has ended, and has changed nothing (and why)",
    Reason.REPAIR_UNKNOWN: "a ZoneRepair has ended, and its pods have told nothing",
    Reason.MIGRATION_STARTED: "a migration is active in the partition's row",
    Reason.MIGRATION_CAUGHT_UP: "the destination has every acknowledged write",
    Reason.MIGRATION_SWITCHED: "the row after the migration is committed: owners have changed",
    Reason.MIGRATION_FINISHED: "the partition is served by the owners after the migration",
    Reason.MIGRATION_REVERTED: "a migration ended without a commit: the owners are unchanged",
    Reason.MIGRATION_CANCELLED: "it was reverted because it no longer led to the target",
    Reason.MIGRATION_FAILED: "it was reverted because of its source or destination; retried later",
}

ROUTINE = frozenset(
    {
        Reason.MIGRATION_STARTED,
        Reason.MIGRATION_CAUGHT_UP,
        Reason.MIGRATION_SWITCHED,
        Reason.MIGRATION_FINISHED,
    }
)
"""Reasons that every successful migration reports, once per partition.  Where people read line by
line, many of them are combined into one."""


class Event(NamedTuple):
    """One event for users.  `zone` is its uid; empty: the event concerns the cluster."""

    zone: str
    partition: int | None
    reason: Reason
    message: str
    kind: str = "Normal"


STATE = "State"
"""The reason of a report that replaces missed events."""

MASTER_LOST = "MasterLost"
"""The reason that an agent reports by itself: no master reaches it, so it relays no events."""

LOST_NAMED_MAX = 100


class ZoneState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a zone, for a listener that may have missed events.

    `lost_partitions` lists the first of the `lost` ones.  Only the master knows
    `migrations_queued`.
    """

    phase: str
    partitions: int
    available: int
    degraded: int
    unavailable: int
    lost: int
    migrations_running: int
    lost_partitions: tuple[int, ...] = ()
    migrations_queued: int | None = None


class ToldEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as users receive it: one JSON object, on every channel.

    `sequence` grows by one with each event of a cluster, and jumps when another master begins; in a
    `State` it is that of the last event included.  `zone` is a name; empty: it concerns the
    cluster.
    """

    sequence: int
    time: str
    kind: str
    reason: str
    message: str
    zone: str = ""
    partition: int | None = None
    state: ZoneState | None = None


class EventPage(msgspec.Struct, frozen=True):
    """An operator's reply to a request for events.  `next`: the sequence after which to
    continue."""

    cluster: str
    events: tuple[ToldEvent, ...]
    next: int


TERM_STEP = 1_000_000_000


def first_sequence(master_term: int) -> int:
    """Return the sequence from which a master's events count; it is above all of earlier
    masters."""
    return master_term * TERM_STEP


def time_text(wall_ms: int) -> str:
    """Return wall milliseconds in RFC 3339 format."""
    moment = datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
