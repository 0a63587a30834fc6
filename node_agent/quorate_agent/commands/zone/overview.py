"""Answers commands about a whole zone: which agent serves which slots, key counts, scans.

Implements the agent that sessions ask (resp.session.Agent); it reads everything from the replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1

from quorate.facts.keyspace import is_reserved, key_slot, slot_shift
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate_agent.clients.addresses import ClientAddresses
from quorate_agent.clients.connection import ClientConnection
from quorate_agent.commands.zone.key_lists import may_list
from quorate_agent.commands.zone.process_facts import (
    human_bytes,
    memory_facts,
    processor_facts,
    server_facts,
)
from quorate_agent.machine.clock import Clock
from quorate_agent.metrics import copy_count
from quorate_agent.notices.event_channel import EventChannel
from quorate_agent.notices.tracking import Tracking
from quorate_agent.resp.cluster_view import ClusterNode, ClusterView
from quorate_agent.resp.remembered import KEPT_MS
from quorate_agent.resp.scan import ScanChunk, ScanPositions, origin_of
from quorate_agent.resp.session import Connection
from quorate_agent.resp.slow_log import SlowLog
from quorate_agent.resp.view import is_live

EXPIRING_LOOKED_AT = 200
"""How many keys INFO samples to estimate how many will expire: each may be a read from disk."""

TAKE_OVER_MS = 500
"""How long a table may wait for another primary.

A master that runs has named other primaries long before, and no library waits so short a time for a
table."""


class ZoneOverview:
    """One zone as its clients on this agent see it.

    `nodes`: client addresses by listener; `connected`: clients by id; `process`: a word that no
    other process has."""

    def __init__(
        self,
        replicas: Replicas,
        node: str,
        nodes: ClientAddresses,
        is_up: Callable[[str], bool],
        connected: Mapping[int, ClientConnection],
        process: str,
        clock: Clock,
        slow_log: SlowLog,
    ) -> None:
        self.replicas = replicas
        self.slow_log = slow_log
        self._run_id = sha1(process.encode(), usedforsecurity=False).hexdigest()
        self.node = node
        self._clock = clock
        self.address = ("", 0)
        self._external_address: tuple[str, int] | None = None  # the last one known
        self.clients: dict[int, Connection] = {}
        self.scan_positions = ScanPositions()
        self.scan_origin = origin_of(node, replicas.me.store, replicas.me.incarnation)
        self.events = EventChannel(replicas, node, connected.values, clock)
        self.tracking = Tracking(replicas, connected)
        self.connection_count = 0  # clients that have connected so far
        self._connected = connected
        self._nodes = nodes
        self._is_up = is_up
        self._gone: dict[str, int] = {}
        """Agents whose process has ended, and until when others may take over (boot ms)."""
        self._shift = slot_shift(replicas.record.partitions)
        self._cluster: ClusterView | None = None
        self._external_cluster: ClusterView | None = None
        self._named: list[int] | None = None  # partitions whose rows name this node as primary

    def table_changed(self) -> None:
        """Have the cluster view rebuilt when it is next asked for: rows, members or ports have
        changed."""
        self._cluster = self._external_cluster = None
        self._named = None

    def peer_gone(self, node: str) -> None:
        """Note that an agent's process has ended."""
        self._gone[node] = self._clock.boot_ms() + TAKE_OVER_MS

    def expects_primary(self, now_ms: int) -> bool:
        """Return whether a primary's process ended so recently that another agent is about to take
        over."""
        for node in [n for n, until in self._gone.items() if until <= now_ms or self._is_up(n)]:
            del self._gone[node]
        return bool(self._gone) and any(
            row is not None and row.primary is not None and row.primary.node in self._gone
            for row in self.replicas.table
        )

    def now_us(self) -> int:
        """Return the wall clock's time in microseconds."""
        return self._clock.wall_us()

    def thread_cpu_s(self) -> float:
        """Return the seconds of CPU that commands have taken."""
        return self._clock.thread_cpu_s()

    def cluster(self, external: bool = False) -> ClusterView:
        """Return which agent serves which slots, with the addresses of one listener."""
        view = self._external_cluster if external else self._cluster
        if view is None:
            view = self._build_cluster(external)
            if external:
                self._external_cluster = view
            else:
                self._cluster = view
        return view

    def has_address(self, external: bool) -> bool:
        """Return whether the address at which this listener's clients reach this agent is known."""
        if external:
            known = self._nodes(True).get(self.node)
            self._external_address = known or self._external_address
        return not external or self._external_address is not None

    def is_reachable(self, node: str, external: bool) -> bool:
        """Return whether `node` is another agent, is up, and has an address for this listener's
        clients."""
        return node != self.node and self._is_up(node) and node in self._nodes(external)

    def _build_cluster(self, external: bool) -> ClusterView:
        nodes = self._nodes(external)
        names = sorted(nodes)
        if self.node not in nodes:
            mine_at = self._external_address if external else None
            nodes = {**nodes, self.node: mine_at or self.address}
            names = sorted(nodes)
        index = {name: at for at, name in enumerate(names)}
        mine = index[self.node]
        primaries: list[int] = []
        epoch = 0
        for row in self.replicas.table:
            if row is None:
                primaries.append(mine)
                continue
            epoch += row.version
            owners = [row.primary.node] if row.primary is not None else []
            owners += [*row.owners, *row.voter_nodes]
            primaries.append(next((index[node] for node in owners if node in index), mine))
        members = tuple(ClusterNode(name, *nodes[name]) for name in names)
        return ClusterView(members[mine], members, tuple(primaries), epoch)

    def slots_served(self, external: bool) -> int:
        """Return how many slots are served for clients of one listener, as far as this agent
        knows: it sees neither whether other agents have a quorum nor which ones they activate."""
        now_ms = self._clock.boot_ms()
        nodes = {row.primary.node for row in self.replicas.table if row and row.primary}
        reachable = {node for node in nodes if self.is_reachable(node, external)}
        served = sum(
            self._serves(row.partition, role, now_ms)
            if row.primary.node == self.node
            else row.primary.node in reachable
            for row, role in zip(self.replicas.table, self.replicas.primaries, strict=True)
            if row is not None and row.primary is not None
        )
        return served << self._shift

    def _serves(self, partition: int, role: Primary | None, now_ms: int) -> bool:
        """Return whether the role serves, or primaries change so recently that commands wait.

        The earlier primary stops for a hand-over, then its role ends; the role of the next one
        begins before it has a lease."""
        if role is None:
            since_ms = self.replicas.lost_primary.get(partition)
        elif role.frozen is not None:
            since_ms = role.frozen.since_ms
        elif role.lease.ms > now_ms:
            return True
        else:
            since_ms = role.began_ms
        return since_ms is not None and now_ms - since_ms < self.replicas.park_bound_ms

    def event_state(self) -> bytes:
        """Return the first message to a subscriber to events: the zone's state."""
        return self.events.state()

    def connections(self) -> list[Connection]:
        """Return all clients of this zone here."""
        return list(self.clients.values())

    def tracks(self, connection: Connection) -> None:
        """Tell the connection from now on about changes of keys it may have cached."""
        client = self._connected.get(connection.id)
        if client is not None:  # a connection of another agent caches nothing
            self.tracking.began(client)

    def may_broadcast(self, prefixes: Sequence[bytes]) -> bool:
        """Return whether the zone's connections may have these prefixes too."""
        return self.tracking.prefixes.has_room(prefixes)

    def _serving(self) -> list[Primary]:
        """Return the primaries whose leases hold, also those that are about to be handed over."""
        now_ms = self._clock.boot_ms()
        return [role for role in self.replicas.roles.values() if role.lease.ms > now_ms]

    def key_count(self) -> int:
        """Return the number of live rows of this agent's primaries whose leases hold."""
        return sum(
            role.copy.space.row_count()
            - self._remembered_count(role)
            - len(role.parts)
            - bool(role.parts)  # the list of them
            for role in self._serving()
        )

    def _remembered_count(self, role: Primary) -> int:
        """Return how many rows hold stored replies; some time after a change of primaries there are
        none."""
        if self._clock.boot_ms() - role.began_ms > KEPT_MS + self.replicas.park_bound_ms:
            return 0
        rows = [role.copy.get(key) for key in role.copy.expiring.reserved]
        return sum(row is not None and row.value is not None for row in rows)

    def info(self) -> dict[str, dict[str, str | int]]:
        """Return the sections of INFO."""
        replicas, clients = self.replicas, self._connected
        live = [copy for copy in replicas.copies.values() if copy.present]
        return {
            "Server": server_facts(self._clock)
            | {
                "run_id": self._run_id,
                "quorate_node": self.node,
                "quorate_zone": replicas.record.name,
            },
            "Clients": {
                "blocked_clients": sum(client.blocked > 0 for client in clients.values()),
                "tracking_clients": len(self.tracking.trackers),
            },
            "Memory": memory_facts()
            | {
                "used_memory_dataset": sum(copy.space.byte_count() for copy in live),
                "maxmemory": replicas.record.max_memory_bytes,
                "maxmemory_human": human_bytes(replicas.record.max_memory_bytes),
                "maxmemory_policy": "noeviction",
            },
            "Persistence": {"aof_enabled": int(self.is_persistent())},
            "Stats": {
                "total_connections_received": self.connection_count,
                "tracking_total_keys": self.tracking.key_count,
                "tracking_total_items": self.tracking.note_count,
                "tracking_total_prefixes": self.tracking.prefix_count,
            },
            "Replication": {
                "quorate_primaries": len(replicas.roles),
                "quorate_copies": copy_count(replicas),
                "quorate_full_copies": replicas.full_copies,
                "quorate_delta_copies": replicas.delta_copies,
            },
            "CPU": processor_facts(),
        }

    def expiring(self) -> tuple[int, int]:
        """Return how many keys of this agent's primaries will expire, and after how many ms on
        average.

        Exact for a few keys, else an estimate."""
        now_ms = self._clock.wall_ms()
        noted = [role.copy.expiring for role in self._serving()]
        keys = sum(len(each.due) - len(each.reserved) for each in noted)
        step = max(sum(len(each.heap) for each in noted) // EXPIRING_LOOKED_AT, 1)
        times = [
            at_ms
            for each in noted
            for at_ms, key in each.heap[::step]
            if each.due.get(key) == at_ms and not is_reserved(key)
        ]
        left_ms = [at_ms - now_ms for at_ms in times if at_ms >= now_ms]  # else it is going
        if not left_ms:
            return 0, 0
        return round(keys * len(left_ms) / len(times)), sum(left_ms) // len(left_ms)

    def primaries(self) -> Sequence[int]:
        """Return the partitions that this agent serves, also if they are about to move."""
        return sorted(role.copy.partition for role in self._serving())

    def is_persistent(self) -> bool:
        """Return whether the zone is kept on disk."""
        return self.replicas.record.persistent

    def partition_count(self) -> int:
        """Return how many partitions the zone has."""
        return self.replicas.record.partitions

    def is_primary(self, partition: int) -> bool:
        """Return whether this agent is primary of the partition, serving or not."""
        return self.replicas.primaries[partition] is not None

    def is_here(self, partition: int) -> bool:
        """Return whether this agent serves the partition and is not about to hand it over."""
        role = self.replicas.primaries[partition] if partition < self.partition_count() else None
        return role is not None and role.serves(self._clock.boot_ms())

    def serves_all(self) -> bool:
        """Return whether this agent serves all partitions it is primary of."""
        return may_list(self.replicas, self._clock.boot_ms())

    def scan_scope(self, since_s: int) -> Sequence[int]:
        """Return the partitions whose rows name this agent as primary, or did at or after
        `since_s`."""
        if self._named is None:
            self._named = [
                partition
                for partition, row in enumerate(self.replicas.table)
                if row is not None and row.primary is not None and row.primary.node == self.node
            ]
        lost = {
            partition
            for partition, lost_ms in self.replicas.lost_primary.items()
            if lost_ms >= since_s * 1000
        }
        return sorted(lost.union(self._named)) if lost else self._named

    def uptime_s(self) -> int:
        """Return seconds of the clock that also runs while the machine is suspended."""
        return self._clock.boot_ms() // 1000

    def scan(
        self,
        partition: int,
        after: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        with_expired: bool = False,
    ) -> ScanChunk:
        """Look at rows of keys > `after`, without reading values that are stored apart."""
        copy = self._copy(partition)
        if copy is None:
            return ScanChunk([], [], None, 0)
        now_ms = 0 if with_expired else self._clock.wall_ms()
        found = copy.space.scan_keys(after, rows_max, bytes_max)
        live = [
            key
            for key, at in zip(found.keys, found.expiries, strict=True)
            if (not at or at >= now_ms) and not (key < b"\1" and is_reserved(key))
        ]  # GONE is before any time
        last = None if found.whole or not found.keys else found.keys[-1]
        return ScanChunk(live, found.keys, last, found.read_bytes)

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a live key."""
        copy = self._copy(key_slot(key) >> self._shift)
        row = None if copy is None else copy.get(key)
        if row is None or not is_live(row, self._clock.wall_ms()):
            return None
        return row.value

    def _copy(self, partition: int) -> Copy | None:
        """Return the copy to read: the primary's, or the one for READONLY connections."""
        role = self.replicas.primaries[partition]
        return self.replicas.copies.get(partition) if role is None else role.copy
