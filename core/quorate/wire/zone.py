"""The custom resource Zone, by which a user declares a zone, and its conversion for the core."""

import enum
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from quorate.facts.keyspace import SLOT_COUNT, is_partition_count
from quorate.facts.partition_row import REPLICAS_MAX
from quorate.facts.zone import (
    NEVER_MS,
    RESET_MS,
    SCALE_DOWN_MS,
    ConsistencyMode,
    Planner,
    StorageKind,
    SyncWrites,
    WriteMode,
    ZoneRecord,
)
from quorate.planning.target.data_nodes import TimerKind
from quorate.planning.target.label_selector import FILTER_LENGTH_MAX, SELECTOR
from quorate.wire.restoring import RESTORING, Restoring
from quorate.wire.schema.resource import (
    API_VERSION,
    Conditions,
    DeletionPolicy,
    Integer,
    Part,
    Resource,
    Rule,
    Text,
    immutable,
    name_rule,
)
from quorate.wire.zone_day import ZoneDay

PARTITION_COUNTS = tuple(1 << power for power in range(SLOT_COUNT.bit_length()))
TIMER_SECONDS_MAX = 10 * 365 * 86_400
ISOLATION_SECONDS_MIN = 5
"""Contact is renewed twice a second: after a few lost messages writes must not stop yet."""
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}
_QUANTITY = "^[1-9][0-9]{0,14}(k|M|G|T|Ki|Mi|Gi|Ti)?$"


class OnAllCopiesLost(enum.StrEnum):
    """The fate of a partition when the stores of all its copies are gone for good."""

    START_EMPTY = "StartEmpty"
    WAIT = "Wait"


def memory_bytes(quantity: int | str) -> int:
    """Bytes of a well-formed Kubernetes quantity such as 512Mi, 2G or a plain integer."""
    text = str(quantity)
    digits = text.rstrip("kKMGTi")
    return int(digits) * _UNITS[text[len(digits) :]]


Quantity = Annotated[
    Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True, max_length=20)],
    Field(json_schema_extra={"x-kubernetes-int-or-string": True}),
]
NEVER = "Never"
_TIMER_WANTED = f"write seconds as an integer from 0 to {TIMER_SECONDS_MAX}, or {NEVER}"


def _is_timer(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return 0 <= value <= TIMER_SECONDS_MAX
    return value == NEVER


def _checked_timer(value: object) -> object:
    if not _is_timer(value):
        raise ValueError(_TIMER_WANTED)
    return value


Timer = Annotated[
    int | str,
    BeforeValidator(_checked_timer),
    Field(json_schema_extra={"x-kubernetes-int-or-string": True}),
]


Filter = Annotated[Text, Field(min_length=1, max_length=FILTER_LENGTH_MAX)]
"""Whether it can be read is judged with the zone (`accept` of the operator), which names the place:
a stored zone whose filter another version wrote is still a zone."""


def _timer_rule(field: str, attribute: str) -> Rule:
    is_seconds = f"type(self.{field}) == int ? self.{field} >= 0 && self.{field} <= "
    cel = f"!has(self.{field}) || ({is_seconds}{TIMER_SECONDS_MAX} : self.{field} == '{NEVER}')"

    def holds(new: "ZoneSpec", _: object) -> bool:
        value = getattr(new, attribute)
        return value is None or _is_timer(value)

    return Rule(field, cel, _TIMER_WANTED, holds)


def timer_ms(value: int | str) -> int:
    """Return the milliseconds of a valid timer; NEVER_MS for Never."""
    return NEVER_MS if isinstance(value, str) else value * 1000


def timer_value(ms: int) -> int | str:
    """Return the timer as a manifest has it."""
    return NEVER if ms >= NEVER_MS else ms // 1000


def import_in_record(importing: str) -> Restoring | None:
    """Return the import that a ZoneRecord says has begun, at whatever Zone."""
    return Restoring.parse(importing.partition(" ")[2])


def begun_import(annotations: Mapping[str, str], uid: str, importing: str) -> Restoring | None:
    """Return the import that has begun at the Zone with this uid, or at an earlier one with its
    data.

    `importing`: of the zone's record.  What it has of this Zone is older than the annotation: a
    removed note says that the import has ended, or that a person gives it up.
    """
    if importing.startswith(f"{uid} "):
        importing = ""
    return Restoring.parse(annotations.get(RESTORING, "")) or import_in_record(importing)


class ObjectName(Part):
    """The name of another object in the same namespace."""

    name: Annotated[Text, Field(min_length=1, max_length=253)]
    """`metadata.name` of that object."""


_HIGH = ConsistencyMode.HIGH_AVAILABILITY
_PROFILE = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_FILTER = rf"^([$][.][.][*]|[$][.]?\[[?].+\]|{SELECTOR})$"
_FILTER_WANTED = (
    "write a label selector, for example region=EU,!spare, or a JSONPath query, for example "
    "$[?(@.region == 'EU')]"
)


class ZoneSpec(Part):
    """The zone as the user declares it."""

    cluster_ref: ObjectName
    """The StorageCluster whose agents hold the zone.  Cannot be changed."""
    partitions: Integer = 256
    """How many partitions the keys are divided into: a power of two up to 16384.  Cannot be
    changed.  More partitions move in smaller pieces; fewer cost less memory and fewer messages."""
    replicas: Annotated[Integer, Field(ge=1, le=REPLICAS_MAX)] = 3
    """How many copies of each partition there should be, 1 to 7.  3 survive the loss of one."""
    consistency_mode: ConsistencyMode = ConsistencyMode.STRONG_CONSISTENCY
    """What a lost majority means: STRONG_CONSISTENCY waits for it, HIGH_AVAILABILITY narrows to
    what is left.  Spelled as IEP-131 spells it, not in CamelCase.  Cannot be changed."""
    storage: StorageKind = StorageKind.PERSISTENT
    """Where copies live: on disk (Persistent) or in memory (InMemory).  Cannot be changed."""
    sync_writes: SyncWrites | None = None
    """Persistent only: when a copy syncs its writes to disk.  Always (when absent): before it
    acknowledges them; Interval: once a second, so that the last moments are lost where a majority
    of the machines loses power at once, or where one does and another loses its disk before the
    first has caught up."""
    max_memory: Quantity | None = None
    """InMemory only: bytes an agent may use for its copies of the zone, as an integer or a quantity
    (512Mi).  Absent: no limit.  At the limit writes are refused, reads go on."""
    planner: Planner = Planner.MINIMAL
    """Which steps move a partition's copies: Minimal (fewest steps, each node copied to once), or
    Staged (Hazelcast's order: hotter replicas first; owners that would change places in a circle
    keep them).  Neither lets the copies fall below what there was."""
    deletion_policy: DeletionPolicy | None = None
    """What becomes of the data when the Zone is deleted.  Retain: copies stay, and the same
    manifest applied again finds them; Delete: they go, too.  Absent: Retain on Kubernetes; the
    embedded operator deletes."""
    data_nodes_auto_adjust_scale_up_seconds: Timer = 0
    """How long after a node joined it becomes a data node of the zone, in seconds, or Never.
    Another node that joins meanwhile starts the time again, and all become data nodes in one step.
    Default 0: at once."""
    data_nodes_auto_adjust_scale_down_seconds: Timer = SCALE_DOWN_MS // 1000
    """How long after a node left it stops being a data node, in seconds, or Never: then a spare
    node takes its copies.  Another node that leaves meanwhile starts the time again.  Primaries do
    not wait for this.  Default 300; 0: as soon as the node is taken for left."""
    partition_distribution_reset_timeout_seconds: Timer | None = None
    """HIGH_AVAILABILITY only: how long a lost majority is waited for before the partition narrows
    to what is left, in seconds, or Never.  Absent: 5."""
    isolation_timeout_seconds: Timer | None = None
    """HIGH_AVAILABILITY only: a primary that has been without contact to the operator for so long
    stops answering, in seconds, or Never; and a partition narrows no earlier after the loss of
    agents that may still run.  Then a network cut leaves at most one side serving, but without an
    operator for so long nothing is served.  Absent: Never."""
    on_all_copies_lost: OnAllCopiesLost | None = None
    """The fate of a partition when every copy of it is lost, as when all agents of an InMemory
    zone were restarted.  StartEmpty: it begins again without data, once every registered agent has
    told what it has.  Wait: it stays LOST until a person decides.  Absent: StartEmpty for InMemory,
    Wait for Persistent."""
    data_nodes_filter: Filter | None = None
    """Which agents may hold the zone's data, by their attributes.  Absent: all.  A JSONPath query
    if it begins with `$`, as `$[?(@.region == 'EU' && @.size > 5)]`, else a label selector, as
    `region=EU,disk in (ssd,nvme),!spare`.  A changed filter takes effect at once; copies leave
    agents that no longer match as soon as others have them."""
    storage_profile: Annotated[Text, Field(pattern=_PROFILE, max_length=253)] | None = None
    """The kind of storage that the zone's agents must offer (`quorate-agent --storage-profile`):
    disk, memory, or a class by its name.  Absent: any.  A change takes effect as that of
    dataNodesFilter does."""
    write_mode: WriteMode | None = None
    """HIGH_AVAILABILITY only: FULL_SYNC (when absent) waits for every online owner, PRIMARY_SYNC
    for the primary alone: what other copies do not have yet is lost with it.  An Event announces
    each change of primary that may lose something.  A change holds for later writes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "dataNodesFilter",
            f"!has(self.dataNodesFilter) || self.dataNodesFilter.matches(r'{_FILTER}')",
            _FILTER_WANTED,
            lambda new, _: True,  # see Filter
        ),
        _timer_rule("dataNodesAutoAdjustScaleUpSeconds", "data_nodes_auto_adjust_scale_up_seconds"),
        _timer_rule(
            "dataNodesAutoAdjustScaleDownSeconds", "data_nodes_auto_adjust_scale_down_seconds"
        ),
        _timer_rule(
            "partitionDistributionResetTimeoutSeconds",
            "partition_distribution_reset_timeout_seconds",
        ),
        _timer_rule("isolationTimeoutSeconds", "isolation_timeout_seconds"),
        Rule(
            "isolationTimeoutSeconds",
            "!has(self.isolationTimeoutSeconds) || (type(self.isolationTimeoutSeconds) == int ? "
            f"self.isolationTimeoutSeconds >= {ISOLATION_SECONDS_MIN} : true)",
            f"write at least {ISOLATION_SECONDS_MIN} seconds, or {NEVER}",
            lambda new, _: (
                not isinstance(new.isolation_timeout_seconds, int)
                or new.isolation_timeout_seconds >= ISOLATION_SECONDS_MIN
            ),
        ),
        Rule(
            "isolationTimeoutSeconds",
            "!has(self.isolationTimeoutSeconds) || self.consistencyMode == 'HIGH_AVAILABILITY'",
            "primaries of a STRONG_CONSISTENCY zone need no operator to serve: remove "
            "isolationTimeoutSeconds",
            lambda new, _: new.isolation_timeout_seconds is None or new.consistency_mode is _HIGH,
        ),
        Rule(
            "partitions",
            f"self.partitions in {list(PARTITION_COUNTS)}",
            "write a power of two from 1 to 16384, for example 256",
            lambda new, _: is_partition_count(new.partitions),
        ),
        Rule(
            "syncWrites",
            "!has(self.syncWrites) || self.storage == 'Persistent'",
            "only a zone with storage: Persistent has syncWrites: remove the field, "
            "or write storage: Persistent",
            lambda new, _: new.sync_writes is None or new.storage is StorageKind.PERSISTENT,
        ),
        Rule(
            "maxMemory",
            "!has(self.maxMemory) || self.storage == 'InMemory'",
            "only a zone with storage: InMemory has maxMemory: remove the field, "
            "or write storage: InMemory",
            lambda new, _: new.max_memory is None or new.storage is StorageKind.IN_MEMORY,
        ),
        Rule(
            "maxMemory",
            f"!has(self.maxMemory) || string(self.maxMemory).matches('{_QUANTITY}')",
            "write bytes as an integer above 0 or with a unit, for example 512Mi",
            lambda new, _: (
                new.max_memory is None or re.fullmatch(_QUANTITY, str(new.max_memory)) is not None
            ),
        ),
        Rule(
            "partitionDistributionResetTimeoutSeconds",
            "!has(self.partitionDistributionResetTimeoutSeconds) "
            "|| self.consistencyMode == 'HIGH_AVAILABILITY'",
            "a STRONG_CONSISTENCY zone never resets: remove "
            "partitionDistributionResetTimeoutSeconds",
            lambda new, _: (
                new.partition_distribution_reset_timeout_seconds is None
                or new.consistency_mode is _HIGH
            ),
        ),
        Rule(
            "writeMode",
            "!has(self.writeMode) || self.consistencyMode == 'HIGH_AVAILABILITY'",
            "a STRONG_CONSISTENCY zone always waits for a majority: remove writeMode",
            lambda new, _: new.write_mode is None or new.consistency_mode is _HIGH,
        ),
        immutable(
            "clusterRef", "data does not move between clusters; declare a new Zone in the other one"
        ),
        immutable(
            "partitions",
            "a key's partition is computed from it; keep the value, or declare a new Zone with the "
            "other number and copy the data",
        ),
        immutable(
            "storage",
            "copies stay where they are; keep the value, or declare a new Zone with the "
            "other storage and copy the data",
        ),
        immutable(
            "consistencyMode",
            "writes acknowledged in one mode cannot be judged in the other; keep the "
            "value, or declare a new Zone",
        ),
    )


class ZonePartitions(Part):
    """How many partitions are in which state."""

    total: Integer = 0
    """All partitions of the zone."""
    available: Integer = 0
    """Served, with all copies."""
    degraded: Integer = 0
    """Served, with copies missing."""
    unavailable: Integer = 0
    """Not served, whether they can be read or not."""
    read_only: Integer = 0
    """Those of the unavailable ones of which a copy answers READONLY connections: the others wait
    for a quorum of their voters."""
    lost: Integer = 0
    """Those of the unavailable ones of which every copy is gone for good."""


class ZoneMigrations(Part):
    """Numbers of migrations."""

    running: Integer = 0
    """Migrations that are running: pending changes of voters."""
    queued: Integer = 0
    """Migrations that wait."""
    planned: Integer = 0
    """Partitions whose voters are to change again after that."""
    bytes_left: Integer = 0
    """Bytes that the running ones still have to copy."""


class ZoneTimer(Part):
    """A timer that runs."""

    kind: TimerKind
    """ScaleUp adds data nodes when it fires, ScaleDown removes them, Reset narrows partitions that
    lost the majority of their voters."""
    nodes: list[Text] = Field(default_factory=list)
    """The agents that it will add or remove; of a Reset, those that are lost."""
    due: Text = ""
    """When it fires, RFC 3339; empty: never, by the zone's spec."""


class ZoneExport(Part):
    """A ZoneBackup or ZoneRestore of the zone that was Complete."""

    time: Text
    """RFC 3339.  Of a backup: when its Job was made; what was acknowledged before is in it.  Of a
    restore: when it ended."""
    run: Text
    """The name of the object, which may be gone."""
    place: Text
    """The place of the export: CLAIM:FOLDER, or an s3:// URL."""


class ZoneComparison(Part):
    """The last DataValidation of one level that has proven that copies agree, or that they differ.

    A difference counts until one of that level, or a deeper one, that began later, finds that all
    copies agree.
    """

    level: Text
    """How deeply copies were compared: Counters, Digest or Rows."""
    verdict: Text
    """Agree or Differ."""
    time: Text
    """When it ended, RFC 3339."""
    began: Text = ""
    """When it began, RFC 3339; empty: not known."""
    run: Text = ""
    """The name of the object, which may be gone; empty: not known."""


class ZoneStatus(Part):
    """What the operator observes.  Ownership itself is in the PartitionTables, never here."""

    observed_generation: Integer = 0
    """The `metadata.generation` of the spec that this status is of."""
    zone_id: Text = ""
    """Identity of the data at agents and in PartitionTables: the uid of this object, or of the
    earlier one whose data it has."""
    phase: Text = ""
    """The state of the zone in one word, such as Available, Rebalancing or Degraded."""
    data_nodes: list[Text] = Field(default_factory=list)
    """The agents that may hold the zone's data."""
    ports: dict[str, Integer] = Field(default_factory=dict)
    """Client port of the zone per agent."""
    port: Integer = 0
    """The client port that the zone was given, the same on all agents that take theirs from the
    operator; 0 where none does."""
    endpoints: list[Text] = Field(default_factory=list)
    """host:port of every agent's client port: a Redis Cluster client may start with any of them."""
    external_endpoints: list[Text] = Field(default_factory=list)
    """The same for clients outside of the cluster, where agents have an external listener."""
    partitions: ZonePartitions = ZonePartitions()
    under_replicated: dict[str, Integer] = Field(default_factory=dict)
    """Number of missing copies -> number of partitions that miss that many."""
    migrations: ZoneMigrations = ZoneMigrations()
    conditions: Conditions = Field(default_factory=list)
    timers: list[ZoneTimer] = Field(default_factory=list)
    """The timers that run, and what they will do."""
    set_aside: dict[str, Integer] = Field(default_factory=dict)
    """Agent -> of how many copies it has rows set aside, which a reset left."""
    last_backup: ZoneExport | None = None
    """The last ZoneBackup whose export was read back."""
    last_restore: ZoneExport | None = None
    """The last ZoneRestore that was complete and compared."""
    comparisons: list[ZoneComparison] | None = None
    """The last result of each level by which a DataValidation has proven something."""
    last_day: ZoneDay | None = None
    """Failovers and missing copies of the last 24 hours.  It is written together with other changes
    of the status, and every five minutes while copies are missing or partitions are not served, so
    that it may be older than `kubectl quorate validate` shows it."""
    placed_uid: Text = ""
    """The uid of this object once all its partitions have had owners.  After that it is never
    placed anew, even if its PartitionTables are lost."""


class Zone(Resource):
    """A zone: partitioned, replicated data under one mode and one set of timers."""

    plural = "zones"
    short_name = "zn"
    has_status = True
    printer_columns = (
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Partitions", "integer", ".spec.partitions"),
        ("Replicas", "integer", ".spec.replicas"),
        ("Storage", "string", ".spec.storage"),
        ("Available", "string", ".status.conditions[?(@.type=='Available')].status"),
        ("Replicated", "string", ".status.conditions[?(@.type=='FullyReplicated')].status"),
        ("Pending", "integer", ".status.migrations.running"),
        ("Planned", "integer", ".status.migrations.planned"),
        ("Phase", "string", ".status.phase"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("Zone"),)

    spec: ZoneSpec
    status: ZoneStatus = ZoneStatus()


def to_record(zone: Zone, ports: dict[str, int] | None = None) -> ZoneRecord:
    """The zone as the core uses it."""
    spec = zone.spec
    return ZoneRecord(
        uid=zone.metadata.uid,
        name=zone.metadata.name,
        partitions=spec.partitions,
        replicas=spec.replicas,
        storage=spec.storage,
        sync_writes=spec.sync_writes or SyncWrites.ALWAYS,
        max_memory_bytes=memory_bytes(spec.max_memory) if spec.max_memory is not None else 0,
        ports=dict(ports or {}),
        deleting=zone.metadata.deletion_timestamp is not None,
        planner=spec.planner,
        placed=bool(zone.metadata.uid) and zone.status.placed_uid == zone.metadata.uid,
        port=zone.status.port,
        scale_down_ms=timer_ms(spec.data_nodes_auto_adjust_scale_down_seconds),
        scale_up_ms=timer_ms(spec.data_nodes_auto_adjust_scale_up_seconds),
        start_empty=_starts_empty(spec),
        filter=spec.data_nodes_filter or "",
        storage_profile=spec.storage_profile or "",
        mode=spec.consistency_mode,
        reset_ms=_reset_ms(spec),
        write_mode=spec.write_mode or WriteMode.FULL_SYNC,
        isolation_ms=timer_ms(spec.isolation_timeout_seconds or NEVER),
    )


def importing_of(zone: Zone, known: str) -> str:
    """Return `importing` of the record of a zone that is declared.

    `known`: that of its record now.  It stays if it is of an earlier Zone, whose note went with it;
    if it is of this one, the note was removed, because all rows are there or a person said so.
    Whether the import has begun is not told: the Job that imports is made before the record is
    written again.
    """
    uid, text = zone.metadata.uid, zone.metadata.annotations.get(RESTORING, "")
    note = Restoring.parse(text)
    if note is not None and note.not_begun:
        text = note._replace(not_begun=False).text
    if text:
        return f"{uid} {text}"
    return "" if known.startswith(f"{uid} ") else known


def _reset_ms(spec: ZoneSpec) -> int:
    wanted = spec.partition_distribution_reset_timeout_seconds
    return RESET_MS if wanted is None else timer_ms(wanted)


def _starts_empty(spec: ZoneSpec) -> bool:
    if spec.on_all_copies_lost is None:
        return spec.storage is StorageKind.IN_MEMORY
    return spec.on_all_copies_lost is OnAllCopiesLost.START_EMPTY


def manifest_of(record: ZoneRecord, cluster: str) -> dict[str, object]:
    """The manifest from which `to_record` would make this record, but for its uid."""
    spec: dict[str, object] = {
        "clusterRef": {"name": cluster},
        "partitions": record.partitions,
        "replicas": record.replicas,
        "storage": record.storage.value,
        "planner": record.planner.value,
    }
    if record.sync_writes is not SyncWrites.ALWAYS:
        spec["syncWrites"] = record.sync_writes.value
    if record.max_memory_bytes:
        spec["maxMemory"] = record.max_memory_bytes
    if record.scale_down_ms != SCALE_DOWN_MS:
        spec["dataNodesAutoAdjustScaleDownSeconds"] = timer_value(record.scale_down_ms)
    if record.scale_up_ms:
        spec["dataNodesAutoAdjustScaleUpSeconds"] = timer_value(record.scale_up_ms)
    if record.start_empty is record.persistent:
        asked = OnAllCopiesLost.START_EMPTY if record.start_empty else OnAllCopiesLost.WAIT
        spec["onAllCopiesLost"] = asked.value
    if record.filter:
        spec["dataNodesFilter"] = record.filter
    if record.storage_profile:
        spec["storageProfile"] = record.storage_profile
    if record.mode is ConsistencyMode.HIGH_AVAILABILITY:
        spec["consistencyMode"] = record.mode.value
        spec["partitionDistributionResetTimeoutSeconds"] = timer_value(record.reset_ms)
        spec["writeMode"] = record.write_mode.value
        if record.isolation_ms < NEVER_MS:
            spec["isolationTimeoutSeconds"] = timer_value(record.isolation_ms)
    return {
        "apiVersion": API_VERSION,
        "kind": Zone.kind_name(),
        "metadata": {"name": record.name},
        "spec": spec,
    }
