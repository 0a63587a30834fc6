"""Which zones and clients an agent takes, so that its file descriptors never run out.

A descriptor that is missing where the agent links to others, writes its folder or a database makes
a table costs the process; a zone or a client that is refused costs only itself.  So what zones may
need is counted before they are opened, and clients have what is left.
"""

from quorate.protocol.storage import ZoneRefused

FIXED = 16
"""Standard files, event loop, folder, the port for metrics."""

LINKS_MIN = 48
LINKS_MAX = 4_096
"""Links: two to each other agent, one to the master, some to tools.  Under a limit of 4,096 there
is room for those of a hundred agents."""

_LIMIT_PER_LINK = 16

_LINKS_PER_STRANGER = 4
STRANGERS_MAX = 512
"""Connections at the port for links that have proven nothing yet: agents that all start at once
prove themselves within milliseconds."""

RESERVE = FIXED + LINKS_MIN + LINKS_MIN // _LINKS_PER_STRANGER
"""The least that is kept from zones and clients."""

CLIENTS_MIN = 32
"""Zones leave so many to clients."""

DATABASE = 7
"""What RocksDB has open of an empty database: two folders, LOCK, LOG, manifest, log; and the next
log while the one before it becomes a table."""

TABLES_MIN = 10
"""RocksDB keeps no fewer tables open, if there are so many."""

TABLES_MAX = 256

_LIMIT_PER_TABLE = 256
"""With this some 150 zones have room under a limit of 4,096 and more, and each keeps as many tables
open as a higher limit allows."""


class Descriptors:
    """One agent process's descriptors, of which it may have `limit`; on each of `listeners` every
    zone listens."""

    def __init__(self, limit: int, listeners: int = 1) -> None:
        self.limit = limit
        self._listeners = listeners
        self.tables = min(max(limit // _LIMIT_PER_TABLE, TABLES_MIN), TABLES_MAX)
        """How many tables each zone may keep open."""
        self.links = min(max(limit // _LIMIT_PER_LINK, LINKS_MIN), LINKS_MAX)
        """The largest number of links of members.  More are refused."""
        self.strangers = min(self.links // _LINKS_PER_STRANGER, STRANGERS_MAX)
        """The largest number of connections beside them that have proven nothing."""
        self.reserve = FIXED + self.links + self.strangers
        self.clients = 0
        self._zones: dict[str, int] = {}

    def of_zone(self, persistent: bool) -> int:
        """What a zone may need: sockets that listen, and its database."""
        return self._listeners + (DATABASE + self.tables if persistent else 0)

    def take_zone(self, uid: str, persistent: bool) -> None:
        """Count a zone that is about to be opened; ZoneRefused where it has no room."""
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
        """The zone is closed, or could not be opened."""
        self._zones.pop(uid, None)

    def take_client(self) -> bool:
        """Count a client that has connected; False: there is no room, it is to be closed."""
        if self.clients >= self.limit - self.reserve - self._of_zones():
            return False
        self.clients += 1
        return True

    def client_gone(self) -> None:
        """A client that was counted has left."""
        self.clients -= 1

    def _of_zones(self) -> int:
        return sum(self._zones.values())
