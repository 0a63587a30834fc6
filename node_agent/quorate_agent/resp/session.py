"""The context of commands without keys: their connection, and the agent."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quorate_agent.resp.cluster_view import ClusterView
from quorate_agent.resp.scan import ScanChunk, ScanPositions
from quorate_agent.resp.slow_log import SlowLog
from quorate_agent.resp.tracking_mode import TrackingMode
from quorate_agent.resp.transaction import CHANGED, Seen, Transaction


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
        "unwatched",
        "watched",
    )

    def __init__(self, id: int, addr: str, laddr: str, created_ms: int) -> None:
        self.id = id
        self.addr = addr  # host:port of the client
        self.laddr = laddr  # host:port it connected to
        self.created_ms = created_ms  # wall
        self.last_ms = created_ms  # wall, of the last command
        self.name = b""
        self.lib_name = b""
        self.lib_version = b""
        self.resp3 = False
        self.readonly = False
        self.maintenance = False  # wants to be told of hand-overs
        self.external = False  # came by the external listener, so gets external addresses
        self.is_agents = False  # stands for a client of another agent
        self.closing = False  # close after sending the replies
        self.transaction: Transaction | None = None  # between MULTI and EXEC
        self.watched: dict[bytes, Seen] = {}
        self.unwatched: set[bytes] = set()  # keys of a WATCH that was not executed
        self.tracking: TrackingMode | None = None  # set while it caches what it reads
        self.subscribed: dict[tuple[bool, bytes], None] = {}  # (is a pattern, name), in order

    @property
    def in_mode(self) -> bool:
        """Whether its commands need more than being executed one after the other.

        `joined_reads.read_one` has the same test inlined."""
        return self.transaction is not None or self.tracking is not None or bool(self.subscribed)

    def end_transaction(self) -> None:
        """Forget what was queued and watched."""
        self.transaction = None
        self.unwatch()

    def unwatch(self) -> None:
        """Forget what was watched, and which keys could not be.

        A WATCH that is executed late finds the former collections, so it changes nothing here."""
        self.watched, self.unwatched = {}, set()

    def forget_unwatched(self) -> None:
        """Forget which keys could not be watched: the client knew before it sent more.

        A key that is watched all the same, by another WATCH, stays so."""
        for key in self.unwatched:
            if self.watched.get(key) == CHANGED:
                del self.watched[key]
        self.unwatched.clear()


class AgentServices(Protocol):
    """One zone on one agent, as commands see it."""

    @property
    def slow_log(self) -> SlowLog:
        """The commands whose execution took long."""

    @property
    def scan_positions(self) -> ScanPositions:
        """The positions of scans."""

    @property
    def scan_origin(self) -> int:
        """Tells our scans from those of earlier processes (scan.origin_of)."""

    def now_us(self) -> int:
        """Return the wall clock's time in microseconds."""

    def thread_cpu_s(self) -> float:
        """Return the seconds of CPU that commands have taken."""

    def cluster(self, external: bool) -> ClusterView:
        """Return the present view for clients of one listener; the same object while nothing
        changes."""

    def slots_served(self, external: bool) -> int:
        """Return how many slots are served for clients of one listener, as far as this agent
        knows."""

    def event_state(self) -> bytes:
        """Return the first message to a subscriber to events: the zone's state, as JSON."""

    def connections(self) -> Iterable[Connection]:
        """Return all client connections of the zone."""

    def tracks(self, connection: Connection) -> None:
        """Tell the connection from now on about changes of keys it may have cached."""

    def may_broadcast(self, prefixes: Sequence[bytes]) -> bool:
        """Return whether the zone's connections may have these prefixes too."""

    def key_count(self) -> int:
        """Return the number of live keys of the partitions this agent is primary of."""

    def expiring(self) -> tuple[int, int]:
        """Return how many of them will expire, and after how many ms on average; an estimate."""

    def info(self) -> Mapping[str, Mapping[str, str | int]]:
        """Return lines for INFO by section title ("Server"); they override the defaults."""

    def primaries(self) -> Sequence[int]:
        """Return the partitions this agent serves, ascending."""

    def is_persistent(self) -> bool:
        """Return whether the zone is kept on disk."""

    def partition_count(self) -> int:
        """Return how many partitions the zone has."""

    def is_primary(self, partition: int) -> bool:
        """Return whether this agent is primary of the partition, serving or not."""

    def is_here(self, partition: int) -> bool:
        """Return whether this agent serves the partition now and is not about to hand it over."""

    def serves_all(self) -> bool:
        """Return whether this agent serves all partitions it is primary of."""

    def scan_scope(self, since_s: int) -> Sequence[int]:
        """Return the partitions this agent is primary of, serving or not, or was since `since_s`;
        ascending."""

    def uptime_s(self) -> int:
        """Return seconds on a clock that never goes back."""

    def scan(
        self,
        partition: int,
        after: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        with_expired: bool = False,
    ) -> ScanChunk:
        """Look at the rows of keys > `after`: at 1 to `rows_max`, until `bytes_max` are read.

        `with_expired`: keys that have expired and are not removed yet are live ones."""

    def value(self, key: bytes) -> bytes | None:
        """Return the row's value of a live key of a partition this agent is primary of."""


@dataclass(frozen=True, slots=True)
class Session:
    """One connection at one agent."""

    connection: Connection
    agent: AgentServices


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """The arguments of WAIT."""

    copies: int
    timeout_ms: int  # 0: for ever


@dataclass(frozen=True, slots=True)
class KeysRequest:
    """The arguments of KEYS."""

    matches: Callable[[bytes], object] | None  # true for the names to be listed; None: all
    weight: int  # steps of matching for each byte of a name (glob_weight)
