"""What master, agents and tools say to each other: the only form of every message.

Frames on a peer connection are a four-byte big-endian length and one of these structs in msgpack,
as an array whose first element is the tag.  Core, agents and simulator use the structs as they are.
`zone` is the zone's uid; `term`, `version`, counters as in docs/protocol.md; `*_ms` milliseconds.
"""

import enum

import msgspec

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.client_messages import Forward, Forwarded
from quorate.protocol.events import ToldEvent
from quorate.protocol.storage import Operation
from quorate.protocol.tool_messages import (
    AskBuckets,
    AskCopies,
    AskDigests,
    AskRows,
    Buckets,
    Copies,
    CopyRows,
    Damage,
    Damaged,
    Digests,
    Refill,
    Refilling,
)
from quorate.protocol.transaction_messages import TransactionMessage
from quorate.protocol.transfer_messages import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Unavailable,
    Updates,
)

FORMAT_LOWEST = 2
FORMAT_VERSION = 2
"""The lowest and the highest format of frames that this build speaks (formats.py)."""
FRAME_BYTES_MAX = 80 * 1024 * 1024


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One update of a partition: resulting rows or tombstones, never deltas."""

    counter: int
    term: int
    operations: tuple[Operation, ...]


# --- handshake -----------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What each side says together with its proof.  `role`: agent, master or tool; the folder's
    store.  `format_version`: the format that is spoken over this link; the handshake writes it.

    `process` is an agent process's own random word (facts/topology.py); `master_word` the random
    word of the mastership `master_term`: a master's own, an agent's of the one it last obeyed.
    `client_ports`: the range of an agent that takes its zones' client ports from the master.
    `external_host`: the host at which clients reach its external listener; None: it has none;
    empty: it has one, and the operator knows its addresses."""

    format_version: int
    role: str
    cluster: str
    node: str = ""
    store: str = ""
    incarnation: int = 0
    master_term: int = 0
    host: str = ""
    peer_port: int = 0
    client_host: str = ""
    failure_domain: str = ""
    weight: int = 1
    process: str = ""
    master_word: str = ""
    client_ports: tuple[int, int] | None = None
    external_host: str | None = None


class RefusalCode(enum.StrEnum):
    """Why a connection is refused, as far as the other side may act on it."""

    FORMAT = "format"
    CLUSTER = "cluster"
    SECRET = "secret"
    """It was not proven that the cluster's secret is known."""
    ROLE = "role"
    NODE = "node"
    """Another node answers where one was expected."""
    NAME = "name"
    """No node may have this name."""
    NAME_IN_USE = "name-in-use"
    CONNECTED = "connected"
    """This very process is connected already."""
    COPIED_FOLDER = "copied-folder"
    OLDER_IMAGE = "older-image"
    """The agent's folder must be set aside: it does so and starts anew."""
    OLDER_PROCESS = "older-process"
    STALE_MASTER = "stale-master"
    NOT_KEPT = "not-kept"
    """The agent cannot make durable which mastership it obeys: later it may."""
    TERM_AHEAD = "term-ahead"
    """The master's term is so far above all that the agent has heard of that it is not believed."""
    GOODBYE = "bye"
    """The process is ending, or has no use for the link: nothing is wrong."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The other side will not talk; the connection closes.  `reason` is a sentence for people,
    `code` a RefusalCode, or one of a version that knows more of them.  `master_term`, with
    STALE_MASTER: the highest mastership that the agent knows; 0: it does not say."""

    reason: str
    code: str = ""
    master_term: int = 0


# --- master to agent -----------------------------------------------------------------------------


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


# --- agent to master -----------------------------------------------------------------------------


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


# --- agent to agent ------------------------------------------------------------------------------


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Asks the other agent for a lease on everything it promised to the sender's incarnation.

    `sent_ms` is the sender's boot clock; `seen` the exception sequence it has taken in.
    """

    sent_ms: int
    seen: int


class HeartbeatAck(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Grants the lease, counted by the holder from `sent_ms`, except where listed.

    `exceptions` are (zone, partition, promised term): promises that have moved to another holder.
    They are repeated until a Heartbeat carries `sequence` as seen.
    """

    sent_ms: int
    lease_ms: int
    sequence: int
    exceptions: tuple[tuple[str, int, int], ...]


class Fence(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """From a new primary to every voter: promise `term` to `holder`, report what you hold."""

    zone: str
    partition: int
    term: int
    holder: Holder


class FenceAck(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """The promise is durable.  Held: every counter <= lwm (in the lineage's terms) and `above`,
    (term, ranges).  `lease_ms`: how long a lease granted to an earlier holder may still run."""

    zone: str
    partition: int
    term: int
    store: str
    lineage: Lineage
    lwm: int
    above: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    lease_ms: int
    adopted: bool


class FenceRefused(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """A higher (or equal, another holder's) term was promised, or the store is not ready."""

    zone: str
    partition: int
    term: int
    promised: int


class Sync(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """From an active primary: adopt this lineage, whose last entry is the term's."""

    zone: str
    partition: int
    term: int
    lineage: Lineage
    hwm: int


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """New updates of one partition in one term.  `hwm`: the highest counter sent so far;
    `majority`: held by a majority (logs may be cut there); `settled`: held by all copies."""

    partition: int
    term: int
    hwm: int
    majority: int
    settled: int
    updates: tuple[bytes, ...]


class Append(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """From primaries of one agent, one turn's updates; each update is an encoded Update."""

    zone: str
    batches: tuple[Batch, ...]


class Acks(msgspec.Struct, frozen=True, array_like=True, tag=47):
    """(partition, term, lwm): durably held by a copy that has adopted the term."""

    zone: str
    entries: tuple[tuple[int, int, int], ...]


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """An Append or Sync of a term that is not the promised one; `promised` is, 0 for none."""

    zone: str
    partition: int
    term: int
    promised: int


Message = (
    Hello
    | Refused
    | Members
    | ZoneTable
    | ZoneGone
    | MasterPing
    | PreparedRow
    | Freeze
    | AskInventory
    | EventsTold
    | Greet
    | Inventory
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
    | Heartbeat
    | HeartbeatAck
    | Fence
    | FenceAck
    | FenceRefused
    | Sync
    | Append
    | Acks
    | Rejected
    | FetchUpdates
    | Updates
    | FetchKeys
    | KeyRows
    | FetchSnapshot
    | SnapshotChunk
    | Unavailable
    | Forward
    | Forwarded
    | TransactionMessage
    | AskCopies
    | Copies
    | AskRows
    | CopyRows
    | Damage
    | Damaged
    | AskDigests
    | Digests
    | AskBuckets
    | Buckets
    | Refill
    | Refilling
)
