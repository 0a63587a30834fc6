"""A zone's declared settings in the core (the model of the custom resource is wire/zone.py)."""

import enum

import msgspec

SCALE_DOWN_MS = 300_000
"""Default time to wait for an agent that has left. Restarts and machine upgrades are shorter; after
it, another agent gets a copy of everything that the one that left holds."""


NEVER_MS = 1 << 53
"""A timer with this time never fires."""


RESET_MS = 5_000
"""Default time after which a HIGH_AVAILABILITY partition narrows to what is left of its voters."""


class ConsistencyMode(enum.StrEnum):
    """The two answers to a lost majority of a partition's voters, in IEP-131's words."""

    STRONG_CONSISTENCY = "STRONG_CONSISTENCY"
    HIGH_AVAILABILITY = "HIGH_AVAILABILITY"


class WriteMode(enum.StrEnum):
    """Which copies hold a write before it is acknowledged, in HIGH_AVAILABILITY."""

    FULL_SYNC = "FULL_SYNC"
    """A majority of the voters, and every online owner."""
    PRIMARY_SYNC = "PRIMARY_SYNC"
    """The primary alone, while it has its lease."""


class StorageKind(enum.StrEnum):
    """Kinds of storage for copies."""

    PERSISTENT = "Persistent"
    IN_MEMORY = "InMemory"


class SyncWrites(enum.StrEnum):
    """When a Persistent copy counts an update as durable."""

    ALWAYS = "Always"
    INTERVAL = "Interval"


class Planner(enum.StrEnum):
    """The planner that finds the steps from a row to its target (planning/steps/plan_step.py)."""

    MINIMAL = "Minimal"
    STAGED = "Staged"


RESETS_FORMAT = 4
"""The frame format from which on agents know resets (protocol/messages/handshake.py)."""


class DataNodes(msgspec.Struct, frozen=True, array_like=True):
    """The nodes that may hold a zone's copies, as the zone's timers left them.

    - `nodes`: their names, sorted. A node that left stays one until the scale-down timer fires; a
      node that joined becomes one when the scale-up timer fires.
    - `revision`: of the topology that they came from.
    - `filter`, `storage_profile`: those of the zone by which the nodes were chosen.
    """

    nodes: tuple[str, ...]
    revision: int = 0
    filter: str = ""
    storage_profile: str = ""


class ZoneRecord(msgspec.Struct, frozen=True, array_like=True):
    """One declared zone.

    - `uid` tells this zone from a later one of the same name.
    - `port`: the client port that the master gave the zone, for agents that take theirs from it; 0:
      none yet.
    - `ports`: node -> the port on which it listens for the zone's clients, however it was chosen.
    - `external_ports`: node -> the port that clients of an external listener dial, which may differ
      from the one it listens on.
    - `max_memory_bytes`: 0 means no limit.
    - `recovering`: rows were lost. A partition without a row has one at the agents.
    - `placed`: every partition has had a row. A missing row was lost, and the partition is never
      placed afresh.
    - `scale_down_ms`: how long to wait for an agent that has left before a spare takes its place.
    - `scale_up_ms`: how long an agent must have been there before it gets copies.
    - `start_empty`: partitions whose every copy is lost begin again without data.
    - `data_nodes`: None before the first placement.
    - `filter`: which nodes may be data nodes, by their attributes; empty: all
      (planning/target/node_filter.py). `storage_profile`: the kind of storage that they must offer;
      empty: any.
    - `mode`: what the loss of a majority means. In HIGH_AVAILABILITY, `reset_ms`: how long it is
      waited for, `write_mode`, and `isolation_ms`: how long a primary serves without contact to the
      master, and the partition waits at least for voters whose stores are not gone for good.

    - `importing`: the import into the zone that has begun and has not ended well: the uid of the
      Zone at which it is noted, a blank, and the note (wire/zone.py); empty: none.

    Agents are not told `data_nodes`: only the master needs them.
    """

    uid: str
    name: str
    partitions: int
    replicas: int
    storage: StorageKind = StorageKind.PERSISTENT
    sync_writes: SyncWrites = SyncWrites.ALWAYS
    max_memory_bytes: int = 0
    ports: dict[str, int] = {}
    deleting: bool = False
    planner: Planner = Planner.MINIMAL
    recovering: bool = False
    placed: bool = False
    port: int = 0
    external_ports: dict[str, int] = {}
    scale_down_ms: int = SCALE_DOWN_MS
    scale_up_ms: int = 0
    data_nodes: DataNodes | None = None
    start_empty: bool = False
    filter: str = ""
    storage_profile: str = ""
    mode: ConsistencyMode = ConsistencyMode.STRONG_CONSISTENCY
    reset_ms: int = RESET_MS
    write_mode: WriteMode = WriteMode.FULL_SYNC
    isolation_ms: int = NEVER_MS
    importing: str = ""

    @property
    def acknowledges_by_all(self) -> bool:
        """Whether a write is acknowledged only when every online owner has it."""
        is_high = self.mode is ConsistencyMode.HIGH_AVAILABILITY
        return is_high and self.write_mode is WriteMode.FULL_SYNC

    @property
    def acknowledges_alone(self) -> bool:
        """Whether a write is acknowledged as soon as the primary has it."""
        is_high = self.mode is ConsistencyMode.HIGH_AVAILABILITY
        return is_high and self.write_mode is WriteMode.PRIMARY_SYNC

    @property
    def frame_format(self) -> int:
        """The lowest frame format of agents that may hold copies; older ones ignore the mode."""
        return RESETS_FORMAT if self.mode is ConsistencyMode.HIGH_AVAILABILITY else 0

    @property
    def persistent(self) -> bool:
        """Whether copies outlive their process."""
        return self.storage is StorageKind.PERSISTENT
