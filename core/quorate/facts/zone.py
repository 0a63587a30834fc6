"""What a zone asks for, as the core uses it (the custom resource's model is wire/zone.py)."""

import enum

import msgspec

SCALE_DOWN_MS = 300_000
"""How long a lost agent is waited for unless the zone says otherwise.  Restarts and upgrades of a
machine are shorter; another agent would be given a copy of everything that the lost one holds."""


class StorageKind(enum.StrEnum):
    """Where copies live."""

    PERSISTENT = "Persistent"
    IN_MEMORY = "InMemory"


class SyncWrites(enum.StrEnum):
    """When a Persistent copy counts an update as durable."""

    ALWAYS = "Always"
    INTERVAL = "Interval"


class Planner(enum.StrEnum):
    """Which steps lead from a row to its target (planning/next_migration.py)."""

    MINIMAL = "Minimal"
    STAGED = "Staged"


class ZoneRecord(msgspec.Struct, frozen=True, array_like=True):
    """One declared zone.  `uid` tells a zone from a later one of the same name.

    `port` is the client port that the master gave the zone, for agents that take theirs from it
    (0: none yet); `ports` maps each node to the port on which it listens, whoever chose it.
    `external_ports` maps each node to the port at which clients of an external listener dial it,
    which may be another one than it listens on.
    `max_memory_bytes` 0 means no limit.
    `recovering`: rows were lost; partitions without a row have one at the agents.  `placed`: every
    partition has had a row: one that is missing was lost, and is never placed afresh.
    `scale_down_ms`: how long an agent that has left is waited for before a spare takes its place.
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

    @property
    def persistent(self) -> bool:
        """Whether copies outlive their process."""
        return self.storage is StorageKind.PERSISTENT
