"""The status of a cluster, as `quorate status`, conditions and metrics show it."""

from collections.abc import Iterable

import msgspec

from quorate.planning.queue.retries import StuckMigration
from quorate.planning.steps.intent import Intent
from quorate.planning.target.data_nodes import TimerKind

PHASE_UNKNOWN = "Unknown"
"""The phase of a zone whose cluster is not led: the condition `Available` says why.  Its partitions
and migrations are not counted then, which is not the same as that there are none."""

_UNRECORDED_SHOWN = 5


class NodeStatus(msgspec.Struct, frozen=True):
    """One agent.  `address` is where other processes dial it, HOST:PORT."""

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
    """The same for clients of an external listener; empty: they cannot reach the agent."""
    attributes: dict[str, str] = {}
    """Names and values by which filters of zones choose it."""
    storage_profiles: tuple[str, ...] = ()
    """The kinds of storage that it offers."""
    unrecorded: tuple[str, ...] = ()
    """Ids of zones of which it has data and the metastore holds no record."""
    draining: bool = False
    """Whether it is to hold no copies; its state says so only while it is online."""


class MigrationStatus(msgspec.Struct, frozen=True):
    """One migration in progress.  Bytes are as its destination reports them."""

    partition: int
    kind: str
    source: str | None
    destination: str | None
    phase: str
    bytes_done: int = 0
    bytes_total: int = 0
    version: int = 0
    """Version of the partition's row, by which a person names what is to be changed."""


class TimerStatus(msgspec.Struct, frozen=True):
    """A timer of a zone that runs.

    `nodes`: those that joined or left; `due_ms`: when it fires, wall clock; None: never.
    """

    kind: TimerKind
    nodes: tuple[str, ...]
    due_ms: int | None


class ZoneStatus(msgspec.Struct, frozen=True):
    """One zone.  `sentence` says what the master waits for.

    Partitions are counted by state (zone_master/view/availability.py): `unavailable` are those that
    no primary serves, READ_ONLY and LOST ones with them.
    """

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
    """Number of missing copies -> number of partitions that miss so many; 0 is left out."""
    migrations_cancelled: int = 0
    """Migrations that were given up because they no longer led to the target, or by a person."""
    bytes_wasted: int = 0
    """Bytes moved by migrations that did not commit, since this master began."""
    failovers: int = 0
    """Partitions that another primary, or another process of it, took over without a hand-over, a
    reset or a decision of a person, since this master began."""
    read_only: int = 0
    """Those of the unavailable ones that are READ_ONLY: `READONLY` connections are answered."""
    lost: int = 0
    """Those of the unavailable ones that are LOST; the first of them in `lost_partitions`."""
    lost_partitions: tuple[int, ...] = ()
    full: dict[str, str] = {}
    """Agent -> why it has no room for more of the zone.  Agents with room are left out."""
    aside: dict[str, tuple[int, int]] = {}
    """Agent -> of how many copies it has rows set aside after resets, and their bytes."""
    refusals: tuple[tuple[str, str], ...] = ()
    """(agent, reason) for agents that are online and cannot open the zone."""
    placed: bool = False
    """Every partition has had a row, so the zone is never placed afresh."""
    rebuilding: bool = False
    """Rows were lost and are being rebuilt from the agents' copies."""
    ownership: str = ""
    """The reports for which rows that are not yet rebuilt wait, and the rows that are set aside;
    empty: none."""
    port: int = 0
    """The client port that the master assigned to the zone, for agents that take it from the
    master; 0: none."""
    external_ports: dict[str, int] = {}
    """Agent -> the port at which clients of an external listener reach it."""
    timers: tuple[TimerStatus, ...] = ()
    """Timers that run, and what they will do: add or remove these data nodes."""
    stuck: tuple[StuckMigration, ...] = ()
    """Steps that failed several times in succession, and are tried again."""
    planned: int = 0
    """Partitions with a step to come, after the migration in progress if there is one."""
    intents: tuple[Intent, ...] = ()
    """The intents of the first of them."""
    data_loss: str = ""
    """Which partitions narrowed to one voter, where all their copies are not back yet; empty:
    none."""
    importing: str = ""
    """The import that has begun and has not ended well, as the zone's record has it; empty:
    none."""
    misfits: str = ""
    """Why copies are on agents that the zone's filter or storage profile excludes; empty: they are
    not, or move away."""


class ClusterStatus(msgspec.Struct, frozen=True):
    """The status of the whole cluster at one moment."""

    master_term: int
    nodes: tuple[NodeStatus, ...]
    zones: tuple[ZoneStatus, ...]


def unrecorded_zones(nodes: Iterable[NodeStatus]) -> str:
    """Return the zones without a record of which agents have data, and these agents; "": none."""
    agents: dict[str, list[str]] = {}
    for node in nodes:
        for uid in node.unrecorded:
            agents.setdefault(uid, []).append(node.name)
    told = [f"{uid} ({', '.join(agents[uid])})" for uid in sorted(agents)]
    more = len(told) - _UNRECORDED_SHOWN
    return ", ".join(told[:_UNRECORDED_SHOWN]) + (f", and {more} more" if more > 0 else "")
