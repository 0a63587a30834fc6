"""Choose the waiting migrations that start now.

All partitions wait in one queue: those with the fewest copies first, then the smaller ones, then
those whose two ends have the least to do. A migration that cannot start does not block those behind
it.

A transfer starts when both of its ends and its zone are below their limits of active migrations and
bytes. One that is larger than the limit of bytes starts when no other is active there. A change of
roles moves no data and has a limit of its own, so it does not wait behind transfers.

While a zone has lost copies that are not replaced, its repairs, changes of roles, and moves off
agents that are to have no copies go on. Its moves for balance do not begin.
"""

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush

import msgspec

from quorate.planning.queue.retries import MigrationRetries


class QueuedMigration(msgspec.Struct, frozen=True):
    """One partition's next step, waiting or active.

    - `owning`: the number of copies that the partition has now. `bytes`: what must be copied.
    - `source` supplies the data. `destination` gets it or becomes the primary. None: no such node.
    - `is_repair`: it replaces a copy that was lost.
    - `is_drain`: its partition has a copy on a node that is to have none, and leads off it.
    """

    zone: str
    partition: int
    owning: int
    source: str | None
    destination: str | None
    copies_data: bool
    bytes: int = 0
    is_repair: bool = False
    is_drain: bool = False

    @property
    def ends(self) -> tuple[str, ...]:
        """The nodes that it burdens, each once."""
        ends = (self.source, self.destination)
        return tuple(node for node in dict.fromkeys(ends) if node is not None)


class StartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be active at once.

    `node_` limits hold for each node as source and destination together, `zone_` limits for each
    zone. `MigrationRetries.at_most` also limits the migrations to one destination, separately for
    transfers and for changes of roles.
    """

    node_migrations: int = 8
    node_bytes: int = 4 * 1024**3
    node_role_changes: int = 8
    zone_migrations: int = 1024
    zone_bytes: int = 1024**4


def choose_migrations(
    waiting: Iterable[QueuedMigration],
    running: Iterable[QueuedMigration],
    limits: StartLimits,
    retries: MigrationRetries,
    losses: Collection[str],
    now_ms: int,
) -> tuple[QueuedMigration, ...]:
    """Return the migrations that start now, in that order.

    - `running`: the active ones in all zones.
    - `losses`: zones with lost copies that are not replaced.

    Not started: what `retries` holds back at `now_ms`, and a second migration of a partition. Of
    equals, the one with the lower zone and partition comes first, whatever the order of `waiting`.
    """
    busy = _Busy(limits, retries)
    under_way: dict[tuple[str, int], None] = {}
    for migration in running:
        busy.add(migration)
        under_way[migration.zone, migration.partition] = None
    queue: list[tuple[int, int, int, str, int, QueuedMigration]] = []
    for migration in waiting:
        zone, partition = migration.zone, migration.partition
        goes_on = migration.is_repair or migration.is_drain or not migration.copies_data
        if (zone, partition) in under_way or (zone in losses and not goes_on):
            continue
        if retries.is_held_back(zone, partition, migration.destination, now_ms):
            continue
        if busy.has_room(migration):  # room only shrinks from here on
            load = busy.load(migration)
            queue.append((migration.owning, migration.bytes, load, zone, partition, migration))
    heapify(queue)
    started: list[QueuedMigration] = []
    while queue:
        owning, size, load, zone, partition, migration = heappop(queue)
        if (zone, partition) in under_way or not busy.has_room(migration):
            continue
        load_now = busy.load(migration)
        if load_now > load:  # others were started meanwhile; loads only grow
            heappush(queue, (owning, size, load_now, zone, partition, migration))
            continue
        busy.add(migration)
        under_way[zone, partition] = None
        started.append(migration)
    return tuple(started)


class _Busy:
    """The active migrations, counted by node and by zone."""

    __slots__ = ("_bytes", "_count", "_incoming", "_limits", "_retries", "_role_changes")

    def __init__(self, limits: StartLimits, retries: MigrationRetries) -> None:
        self._limits = limits
        self._retries = retries
        self._count: dict[tuple[str, str], int] = {}  # by ("node" or "zone", name)
        self._bytes: dict[tuple[str, str], int] = {}
        self._role_changes: dict[str, int] = {}
        self._incoming: dict[tuple[str | None, bool], int] = {}  # by destination and copies_data

    def load(self, migration: QueuedMigration) -> int:
        """Return the number of migrations that are active at both ends."""
        return sum(
            self._count.get(("node", node), 0) + self._role_changes.get(node, 0)
            for node in migration.ends
        )

    def has_room(self, migration: QueuedMigration) -> bool:
        limits, way = self._limits, (migration.destination, migration.copies_data)
        if way[0] is not None and self._incoming.get(way, 0) >= self._retries.at_most(way[0]):
            return False
        if not migration.copies_data:
            most = limits.node_role_changes
            return all(self._role_changes.get(node, 0) < most for node in migration.ends)
        places = [(("zone", migration.zone), limits.zone_migrations, limits.zone_bytes)]
        places += [
            (("node", node), limits.node_migrations, limits.node_bytes) for node in migration.ends
        ]
        for place, most, most_bytes in places:
            under_way = self._count.get(place, 0)
            if under_way >= most:
                return False
            if under_way and self._bytes[place] + migration.bytes > most_bytes:
                return False
        return True

    def add(self, migration: QueuedMigration) -> None:
        way = (migration.destination, migration.copies_data)
        self._incoming[way] = self._incoming.get(way, 0) + 1
        if not migration.copies_data:
            for node in migration.ends:
                self._role_changes[node] = self._role_changes.get(node, 0) + 1
            return
        for place in (("zone", migration.zone), *(("node", node) for node in migration.ends)):
            self._count[place] = self._count.get(place, 0) + 1
            self._bytes[place] = self._bytes.get(place, 0) + migration.bytes
