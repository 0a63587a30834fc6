"""Messages between the master and agents.

`zone` is the zone's uid; `term`, `version` and counters are as in docs/protocol.md; `*_ms` are
milliseconds.
"""

import enum

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import ToldEvent


class Members(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """All registered nodes.  An agent takes part once its own incarnation is listed.

    `sequence` numbers the Members of one master: agents ignore an older one.
    """

    master_term: int
    nodes: tuple[NodeRecord, ...]
    sequence: int = 0


class ZoneTable(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A zone and some (or all) of its committed rows.

    `members`: the sequence of the Members that list every store named in the rows.
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
    """The master's heartbeat; the reply is AgentReport.

    `heard`: the last reply that the master had of this agent; 0: none, or the agent is not taken
    for online.
    """

    master_term: int
    sequence: int
    heard: int = 0


class PreparedRow(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The row after a migration (version + 1), which its destination stores.  It is not committed
    yet."""

    master_term: int
    zone: str
    migration_id: str
    row: PartitionRow


class Freeze(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Tells the primary never to serve again in this term, and to report its last counter."""

    master_term: int
    zone: str
    partition: int
    migration_id: str
    term: int


class AskInventory(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Asks for every copy of every zone.  A new master sends it, and so does a re-registration.

    `brief`: report only how large and how far the adopted copies are (CopySummaries).  Agents of
    format 2 ignore this and report everything.

    `rows`: the metastore is lost.  The agent also reports its rows, including those of partitions
    without a copy here, and zones of which this process was told no row.  `zone`: report only this
    zone, with its rows; if it is not here, the report is empty.
    """

    master_term: int
    rows: bool = False
    zone: str = ""
    brief: bool = False


class EventsTold(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Events since the previous message of this kind, for clients that subscribed.

    It is not repeated.  After a new link from its master, an agent sends its clients the state
    instead.
    """

    master_term: int
    events: tuple[ToldEvent, ...]


class Greet(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Asks the receiver to greet the agent at this address, which does not believe this mastership.

    The greetings tell that agent which mastership others obey (masterships.py).
    """

    master_term: int
    host: str
    peer_port: int


class CopyReport(msgspec.Struct, frozen=True, array_like=True):
    """One copy as its agent has it: committed row version, prepared row and position.

    `size` is the bytes of keys and values.  Set only if rows were asked for:

    - `promised`: the term that the copy has promised
    - `row`: the newest committed row known here, also of a partition without a copy here
    - `unfrozen`: the term in which the agent is primary and has not frozen; 0: none
    """

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
    """All copies of one zone on the sending agent.

    - `rows`: the copies are reported with their rows
    - `record`, if rows were asked for: the newest record of the zone that the agent was given
    - `last`: this ends the inventory
    - `kept`, in the last message: zones of which anything is stored here, open or not
    """

    zone: str
    copies: tuple[CopyReport, ...]
    last: bool = True
    record: ZoneRecord | None = None
    rows: bool = False
    kept: tuple[str, ...] = ()


class ZoneReady(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Says that the agent accepts clients of the zone on `port`, or refuses the zone.

    Port 0: the zone is not open here, and `problem` says why and what to do.  `external_port`: the
    port of the external listener if the agent announces its own external host, else 0.
    """

    zone: str
    port: int
    problem: str = ""
    external_port: int = 0


class RowsStored(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """The agent has these (partition, version), or newer ones.

    `behind`, of partitions that wait for every owner: owners of that row that do not have all that
    was acknowledged, as far as the primary, which sends this, knows.  CopyReady follows for each.
    """

    zone: str
    versions: tuple[tuple[int, int], ...]
    behind: tuple[tuple[int, tuple[str, ...]], ...] = ()


class TroubleKind(enum.StrEnum):
    """In what state a partition is stuck at its primary."""

    ACTIVATING = "activating"
    FROZEN = "frozen"
    NO_QUORUM = "no-quorum"
    """No quorum grants it leases."""
    NO_ROLE = "no-role"
    """The row names this primary, which can no longer serve in that term."""


TROUBLES_MAX = 500
"""A report names no more zones after this many troubles; the next one goes on from there.

An agent with 1,000 zones and no quorum would report 13,000 with every ping, and the master would
elect other primaries for all of them at once.  That load delays the leases of the other agents."""


class Trouble(msgspec.Struct, frozen=True, array_like=True):
    """A partition that has been stuck at its primary for `since_ms`."""

    zone: str
    partition: int
    term: int
    kind: TroubleKind
    since_ms: int


class AsideReport(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a zone that an agent has set aside after resets: of how many copies, and their bytes.

    `dropped`: how often such rows were dropped before their time, since the process started.
    """

    copies: int = 0
    bytes: int = 0
    dropped: int = 0


class AgentReport(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Reply to MasterPing: stuck partitions, and other state of the agent.

    - `unreached`: members that grant this agent no lease now, so messages do not get through in at
      least one direction
    - `full`: zone uid -> why there is no room for more of the zone
    - `refilling`: zone uid -> partitions whose primary should be another agent, because their
      copies here are being refilled, or a key of them is wrong here and is being repaired
    - `aside`: zone uid -> what is set aside, of zones of which there is any, or was
    """

    sequence: int
    troubles: tuple[Trouble, ...] = ()
    leaving: bool = False
    unreached: tuple[str, ...] = ()
    full: dict[str, str] = {}
    refilling: dict[str, tuple[int, ...]] = {}
    aside: dict[str, AsideReport] = {}


class CaughtUp(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """The primary reports, in joint mode, that the destination has caught up.

    Quorums of the voters before and after the migration, and the destination, durably hold every
    counter that was answered so far.
    """

    zone: str
    partition: int
    migration_id: str
    version: int
    term: int


class Frozen(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """The primary reports that it will never serve again in `term`.

    `last` is its last counter, which the destination holds.
    """

    zone: str
    partition: int
    migration_id: str
    term: int
    last: int


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """The destination reports that the prepared row is durable here, or refused for good."""

    zone: str
    partition: int
    migration_id: str
    version: int
    accepted: bool
    reason: str = ""


class Activated(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """The primary reports that it serves in this term.  `behind`: as in RowsStored."""

    zone: str
    partition: int
    term: int
    hwm: int
    behind: tuple[str, ...] = ()


class ActivationBlocked(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """The primary reports that it cannot complete this activation from logs, but `better` can."""

    zone: str
    partition: int
    term: int
    better: str


class CopyReady(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """The primary reports that `node`, with this store, adopted the term and holds all that a
    quorum is known to hold.  `incarnation`: of the process that adopted it; 0: not known."""

    zone: str
    partition: int
    term: int
    node: str
    store: str
    incarnation: int = 0


class TransferProgress(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """The progress of a filling copy.  `full_reason`: why it needs a full copy, if it does."""

    zone: str
    partition: int
    bytes_done: int
    bytes_total: int
    full_reason: str = ""
    done: bool = False


class CopySummaries(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The adopted copies of one zone: (partition, bytes, last term, durable LWM) each."""

    zone: str
    copies: tuple[tuple[int, int, int, int], ...]


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
    | CopySummaries
)
