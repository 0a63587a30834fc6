"""Budget of file descriptors: which zones and clients an agent accepts, so that it never runs out.

Running out where the agent links to others, writes its folder or RocksDB creates a table ends the
process; refusing a zone or a client costs only that zone or client.  So what zones may need is
counted before they are opened, and clients get what is left.
"""

from quorate.protocol.storage import ZoneRefused

FIXED = 16
"""Standard files, event loop, folder, the metrics port."""

LINKS_MIN = 48
LINKS_MAX = 4_096
"""Links: two to each other agent, one to the master, some to tools.

A descriptor limit of 4,096 has room for the links of a hundred agents."""

_LIMIT_PER_LINK = 16

_LINKS_PER_STRANGER = 4
STRANGERS_MAX = 512
"""Unproven connections at the port for links.  Agents that start together prove themselves within
milliseconds."""

RESERVE = FIXED + LINKS_MIN + LINKS_MIN // _LINKS_PER_STRANGER
"""The least that is kept from zones and clients."""

CLIENTS_MIN = 32
"""Descriptors that zones leave to clients."""

DATABASE = 7
"""Descriptors that RocksDB has open of an empty database: two folders, LOCK, LOG, manifest, log,
and the next log while the previous one becomes a table."""

TABLES_MIN = 10
"""RocksDB keeps at least so many tables open, if there are so many."""

TABLES_MAX = 256

_LIMIT_PER_TABLE = 256
"""Leaves room for some 150 zones under a limit of 4,096; a higher limit lets each keep more tables
open."""


class Descriptors:
    """The descriptors of one agent process, at most `limit`; every zone listens on `listeners`
    sockets."""

    def __init__(self, limit: int, listeners: int = 1) -> None:
        self.limit = limit
        self._listeners = listeners
        self.tables = min(max(limit // _LIMIT_PER_TABLE, TABLES_MIN), TABLES_MAX)
        """How many tables each zone may keep open."""
        self.links = min(max(limit // _LIMIT_PER_LINK, LINKS_MIN), LINKS_MAX)
        """The largest number of links of members; more are refused."""
        self.strangers = min(self.links // _LINKS_PER_STRANGER, STRANGERS_MAX)
        """The largest number of unproven connections in addition."""
        self.reserve = FIXED + self.links + self.strangers
        self.clients = 0
        self._zones: dict[str, int] = {}

    def of_zone(self, persistent: bool) -> int:
        """Return how many a zone may need: listening sockets, and its database."""
        return self._listeners + (DATABASE + self.tables if persistent else 0)

    def take_zone(self, uid: str, persistent: bool) -> None:
        """Count a zone that is about to be opened; ZoneRefused if there is no room."""
        needed = self.of_zone(persistent)
        left = self.limit - self.reserve - CLIENTS_MIN - self._of_zones()
        if needed > left:
            raise ZoneRefused(
                f"it needs {needed} file descriptors, and of the {self.limit} that this agent may"
                f" have open {max(left, 0)} are left beside {len(self._zones)} zones, links and"
                f" clients. Way out: start the agent with a higher hard limit (ulimit -Hn,"
                f" LimitNOFILE), or delete a zone"
            )
        self._zones[uid] = needed

    def give_back(self, uid: str) -> None:
        """Stop counting a zone that is closed, or could not be opened."""
        self._zones.pop(uid, None)

    def take_client(self) -> bool:
        """Count a client that has connected; return False if it must be closed for lack of room."""
        if self.clients >= self.limit - self.reserve - self._of_zones():
            return False
        self.clients += 1
        return True

    def client_gone(self) -> None:
        """Stop counting a client."""
        self.clients -= 1

    def _of_zones(self) -> int:
        return sum(self._zones.values())
