"""What commands without keys see: their connection and what the agent offers to all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quorate_agent.resp.cluster_view import ClusterView
from quorate_agent.resp.scan import ScanPositions
from quorate_agent.resp.tracking_mode import TrackingMode
from quorate_agent.resp.transaction import Seen, Transaction


class Connection:
    """The state of one client connection."""

    __slots__ = (
        "addr",
        "closing",
        "created_ms",
        "external",
        "id",
        "is_agents",
        "laddr",
        "last_command",
        "last_ms",
        "lib_name",
        "lib_version",
        "maintenance",
        "name",
        "readonly",
        "resp3",
        "subscribed",
        "tracking",
        "transaction",
        "watch_moved",
        "watched",
    )

    def __init__(self, id: int, addr: str, laddr: str, created_ms: int) -> None:
        self.id = id
        self.addr = addr  # host:port of the client
        self.laddr = laddr  # host:port it connected to
        self.created_ms = created_ms  # wall
        self.last_ms = created_ms  # wall, of the last command
        self.last_command = b"NULL"  # as Redis shows it before the first
        self.name = b""
        self.lib_name = b""
        self.lib_version = b""
        self.resp3 = False
        self.readonly = False
        self.maintenance = False  # wants to be told of hand-overs
        self.external = False  # came by the external listener: is given external addresses
        self.is_agents = False  # of another agent, for a client of its
        self.closing = False  # send what is answered, then close
        self.transaction: Transaction | None = None  # between MULTI and EXEC
        self.watched: dict[bytes, Seen] = {}
        self.tracking: TrackingMode | None = None  # it caches what it reads
        self.watch_moved = False  # a WATCH was redirected: what it guards has to follow it
        self.subscribed: dict[tuple[bool, bytes], None] = {}  # (is a pattern, name), in order

    @property
    def in_mode(self) -> bool:
        """Whether its commands are not just executed, one after the other; `joined_reads.read_one`
        asks the same without a call."""
        return self.transaction is not None or self.tracking is not None or bool(self.subscribed)


class Agent(Protocol):
    """One zone on one agent, as commands see it."""

    @property
    def scan_positions(self) -> ScanPositions:
        """Where scans stand."""

    @property
    def scan_origin(self) -> int:
        """What tells our scans from those of the processes before us (scan.origin_of)."""

    def now_us(self) -> int:
        """Wall microseconds."""

    def cluster(self, external: bool) -> ClusterView:
        """The present view of clients of one listener; the same object as long as nothing
        changes."""

    def event_state(self) -> bytes:
        """What a subscriber to events is told at first: the zone's state, as JSON."""

    def connections(self) -> Iterable[Connection]:
        """All client connections of the zone."""

    def tracks(self, connection: Connection) -> None:
        """From now on the connection is told when what it may have cached changes."""

    def key_count(self) -> int:
        """Live keys of the partitions this agent is primary of."""

    def expiring(self) -> tuple[int, int]:
        """How many of them will expire, and in how many milliseconds on average; an estimate."""

    def slot_key_count(self, slot: int) -> int:
        """Live keys in `slot`; 0 when this agent is not its primary."""

    def info(self) -> Mapping[str, Mapping[str, str | int]]:
        """Lines for INFO by section title ("Server"), over the defaults."""

    def primaries(self) -> Sequence[int]:
        """The partitions this agent serves, ascending."""

    def is_persistent(self) -> bool:
        """Whether the zone is kept on disk."""

    def partition_count(self) -> int:
        """How many partitions the zone has."""

    def is_here(self, partition: int) -> bool:
        """Whether this agent serves the partition now, and is not about to hand it over."""

    def scan_scope(self, since_s: int) -> Sequence[int]:
        """The partitions this agent is primary of, whether it serves them already, or was at any
        time since `since_s`; ascending."""

    def uptime_s(self) -> int:
        """Seconds on a clock that never goes back."""

    def scan(
        self, partition: int, after: bytes | None, rows_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Live keys > `after` in key order, and the last key looked at, live or not; None at the
        end of the partition.  May look at fewer than `rows_max` rows, never at none."""

    def value(self, key: bytes) -> bytes | None:
        """The row's value of a live key of a partition this agent is primary of."""


@dataclass(frozen=True, slots=True)
class Session:
    """One connection at one agent."""

    connection: Connection
    agent: Agent


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """What WAIT asks for."""

    copies: int
    timeout_ms: int  # 0: for ever


@dataclass(frozen=True, slots=True)
class KeysRequest:
    """What KEYS asks for."""

    matches: Callable[[bytes], object] | None  # true for the names to be listed; None: all
