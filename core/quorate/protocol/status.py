"""What can be said of a cluster: the words of `quorate status`, conditions and metrics."""

import msgspec


class NodeStatus(msgspec.Struct, frozen=True):
    """One agent.  `address`: where others dial it, HOST:PORT."""

    name: str
    store: str
    incarnation: int
    online: bool
    state: str
    address: str
    failure_domain: str
    primaries: int
    owners: int
    left_since_ms: int | None = None
    client_host: str = ""
    """The address or DNS name that clients are given."""
    external_host: str = ""
    """The same for clients of an external listener; empty: they cannot reach it."""


class MigrationStatus(msgspec.Struct, frozen=True):
    """One migration under way; bytes as its destination reports them."""

    partition: int
    kind: str
    source: str | None
    destination: str | None
    phase: str
    bytes_done: int = 0
    bytes_total: int = 0


class ZoneStatus(msgspec.Struct, frozen=True):
    """One zone.  `sentence` says what the master waits for; partitions are counted by state."""

    uid: str
    name: str
    phase: str
    sentence: str
    partitions: int
    available: int
    degraded: int
    unavailable: int
    migrations_running: int
    migrations_queued: int
    migrations_done: int
    migrations_failed: int
    bytes_moved: int
    full_copies: int
    ports: dict[str, int]
    data_nodes: tuple[str, ...]
    spread_violations: tuple[tuple[str, int], ...]
    migrations: tuple[MigrationStatus, ...] = ()
    unavailable_partitions: tuple[int, ...] = ()
    missing_copies: dict[int, int] = {}
    """How many copies are missing -> of how many partitions; those that miss none are left out."""
    migrations_cancelled: int = 0
    """Given up because they no longer led to where the partition should be."""
    bytes_wasted: int = 0
    """Moved by migrations that did not commit, since this master began."""
    lost: int = 0
    """Partitions that are LOST; the first of them in `lost_partitions`."""
    lost_partitions: tuple[int, ...] = ()
    full: dict[str, str] = {}
    """Why an agent has no room for more of the zone, by agent; those with room are left out."""
    refusals: tuple[tuple[str, str], ...] = ()
    """(agent, reason) of agents that are online and cannot open the zone."""
    placed: bool = False
    """Every partition has had a row: it is never placed afresh."""
    rebuilding: bool = False
    """Rows were lost and are rebuilt from what agents have."""
    ownership: str = ""
    """What rows that are not rebuilt wait for, and which are set aside; empty: none."""
    port: int = 0
    """The client port that the master gave the zone, for agents that take it from it; 0: none."""
    external_ports: dict[str, int] = {}
    """The port at which clients of an external listener reach each agent."""


class ClusterStatus(msgspec.Struct, frozen=True):
    """Everything, as of now."""

    master_term: int
    nodes: tuple[NodeStatus, ...]
    zones: tuple[ZoneStatus, ...]
