"""What the master and agents say to each other.

`zone` is the zone's uid; `term`, `version`, counters as in docs/protocol.md; `*_ms` milliseconds.
"""

import enum

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import ToldEvent


class Members(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """All registered nodes.  An agent takes part once its own incarnation is in here.

    `sequence` counts what this master has said of them: an older one says nothing.
    """

    master_term: int
    nodes: tuple[NodeRecord, ...]
    sequence: int = 0


class ZoneTable(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A zone and some (or all) of its committed rows.

    `members`: the sequence of the Members that know every store the rows name.
    """

    master_term: int
    zone: ZoneRecord
    rows: tuple[PartitionRow, ...]
    members: int = 0


class ZoneGone(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The zone was deleted: remove its data."""

    master_term: int
    zone: str


class MasterPing(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The master's heartbeat; answered by AgentReport."""

    master_term: int
    sequence: int


class PreparedRow(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Row version + 1 of a migration, for its destination to store; not yet the row."""

    master_term: int
    zone: str
    migration_id: str
    row: PartitionRow


class Freeze(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """To the primary: never serve again in this term, report the last counter."""

    master_term: int
    zone: str
    partition: int
    migration_id: str
    term: int


class AskInventory(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Report every copy of every zone (a new master asks; so does a re-registration).

    `rows`: the metastore is lost.  Report the rows as well, those of partitions without a copy here
    included, and zones of which no row was told to this process.  `zone`: only this one, with its
    rows; one that is not here is told as empty."""

    master_term: int
    rows: bool = False
    zone: str = ""


class EventsTold(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """What users are told since the last of these, for clients that subscribed to it.

    Not repeated: after a new link from its master an agent tells its clients the state."""

    master_term: int
    events: tuple[ToldEvent, ...]


class Greet(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """An agent at this address does not believe this mastership: greet it, so that it hears from
    others which one they obey (masterships.py)."""

    master_term: int
    host: str
    peer_port: int


class CopyReport(msgspec.Struct, frozen=True, array_like=True):
    """One copy as its agent has it: committed row version, prepared row, position, and `size`, the
    bytes of its keys and values.  Where rows were asked for, `promised`: the term it has promised;
    `row`: the newest committed row known here, of a partition that has no copy here too;
    `unfrozen`: the term in which it is primary here and has not frozen, 0 where there is none."""

    partition: int
    version: int
    prepared: PartitionRow | None
    prepared_migration: str
    last_term: int
    lwm: int
    hwm: int
    adopted: bool
    size: int = 0
    promised: int = 0
    row: PartitionRow | None = None
    unfrozen: int = 0


class Inventory(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """All copies of one zone on the sending agent; `record`, where rows were asked for: the zone as
    it was last told to it.  `rows`: the copies are told with their rows.  `kept`, with the last
    one: the zones of which anything is stored here, whether they are open or not."""

    zone: str
    copies: tuple[CopyReport, ...]
    last: bool = True
    record: ZoneRecord | None = None
    rows: bool = False
    kept: tuple[str, ...] = ()


class ZoneReady(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The agent listens for clients of the zone on `port`; 0: it refuses the zone, has none of it
    open, and `problem` says why and what to do.  `external_port`: the port of its external
    listener, where the agent announces its own external host; else 0."""

    zone: str
    port: int
    problem: str = ""
    external_port: int = 0


class RowsStored(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """The agent has these (partition, version) or newer."""

    zone: str
    versions: tuple[tuple[int, int], ...]


class TroubleKind(enum.StrEnum):
    """What a partition is stuck in at its primary."""

    ACTIVATING = "activating"
    FROZEN = "frozen"
    NO_QUORUM = "no-quorum"
    """No majority grants it leases."""
    NO_ROLE = "no-role"
    """The row names it, and it can serve in that term no more."""


class Trouble(msgspec.Struct, frozen=True, array_like=True):
    """A partition that is stuck at its primary, for `since_ms` by now."""

    zone: str
    partition: int
    term: int
    kind: TroubleKind
    since_ms: int


class AgentReport(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Answer to MasterPing, with what is stuck, and the members that grant this agent no lease now:
    messages to them, or theirs to it, do not get through.  By uid of a zone: `full`, why there is
    no room for more of it; `refilling`, the partitions whose copies here are refilled."""

    sequence: int
    troubles: tuple[Trouble, ...] = ()
    leaving: bool = False
    unreached: tuple[str, ...] = ()
    full: dict[str, str] = {}
    refilling: dict[str, tuple[int, ...]] = {}


class CaughtUp(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """From the primary, in joint mode: a majority of the voters after the migration and its
    destination durably hold every counter answered so far."""

    zone: str
    partition: int
    migration_id: str
    version: int
    term: int


class Frozen(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """From the primary: it will never serve again in `term`; `last` is its last counter and the
    destination holds it."""

    zone: str
    partition: int
    migration_id: str
    term: int
    last: int


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """From the destination: the prepared row is durable here, or refused for good."""

    zone: str
    partition: int
    migration_id: str
    version: int
    accepted: bool
    reason: str = ""


class Activated(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """From the primary: it serves in this term."""

    zone: str
    partition: int
    term: int
    hwm: int


class ActivationBlocked(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """From the primary: it cannot complete this activation from logs; `better` can."""

    zone: str
    partition: int
    term: int
    better: str


class CopyReady(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """From the primary: `node` (with this store) adopted the term and holds what was answered."""

    zone: str
    partition: int
    term: int
    node: str
    store: str


class TransferProgress(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """From a filling copy: how far it is, and why it is a full copy when it is one."""

    zone: str
    partition: int
    bytes_done: int
    bytes_total: int
    full_reason: str = ""
    done: bool = False


FromMaster = (
    Members
    | ZoneTable
    | ZoneGone
    | MasterPing
    | PreparedRow
    | Freeze
    | AskInventory
    | EventsTold
    | Greet
)
ToMaster = (
    Inventory
    | ZoneReady
    | RowsStored
    | AgentReport
    | CaughtUp
    | Frozen
    | Prepared
    | Activated
    | ActivationBlocked
    | CopyReady
    | TransferProgress
)
