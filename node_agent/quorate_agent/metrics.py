"""The agent's metrics: the only place where their names are spelled.

Counters are raised where something happens.  Gauges are set in `measure` and `measure_clients`,
which the agent calls once a second.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from quorate.protocol.agent.replicas import Replicas
from quorate_agent.clients.memory import ClientMemory
from quorate_agent.folder.disk_room import DiskRoom
from quorate_link import LinkCounters

PARKED_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

HEARTBEAT_BUCKETS_S = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 1.9, 5.0)
"""A lease lasts for 1.9 s from when its heartbeat was sent."""


class AgentMetrics:
    """One registry per agent process; no per-partition labels."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.connections = Gauge(
            "quorate_client_connections", "Open client connections", registry=self.registry
        )
        self.moved = Counter(
            "quorate_commands_moved", "Commands answered with MOVED", registry=self.registry
        )
        self.forwarded = Counter(
            "quorate_commands_forwarded",
            "Commands forwarded to the agent that had become primary",
            registry=self.registry,
        )
        self.parked = Counter(
            "quorate_commands_parked", "Commands that waited for a primary", registry=self.registry
        )
        self.parked_seconds = Histogram(
            "quorate_command_parked_seconds",
            "Time that a command waited for a primary",
            buckets=PARKED_BUCKETS_S,
            registry=self.registry,
        )
        self.clusterdown = Counter(
            "quorate_commands_clusterdown",
            "Commands that waited for a primary in vain",
            registry=self.registry,
        )
        self.unknown = Counter(
            "quorate_commands_unknown",
            "Writes of unknown outcome",
            registry=self.registry,
        )
        self.transactions = Counter(
            "quorate_transactions",
            "Transactions over several partitions, by outcome",
            ["outcome"],
            registry=self.registry,
        )
        self.primaries = Gauge(
            "quorate_primaries", "Partitions this agent serves", ["zone"], registry=self.registry
        )
        self.copies = Gauge(
            "quorate_copies", "Copies on this agent", ["zone"], registry=self.registry
        )
        self.full_copies = Gauge(
            "quorate_full_copies_total",
            "Full copies, by reason",
            ["zone", "reason"],
            registry=self.registry,
        )
        self.delta_copies = Gauge(
            "quorate_delta_copies_total",
            "Copies that caught up from the log",
            ["zone"],
            registry=self.registry,
        )
        self.storage_full = Gauge(
            "quorate_storage_full",
            "1 while there is no room for more of the zone, and writes are refused",
            ["zone"],
            registry=self.registry,
        )
        self.aside = Gauge(
            "quorate_set_aside_copies",
            "Copies of which rows are set aside after resets",
            ["zone"],
            registry=self.registry,
        )
        self.aside_bytes = Gauge(
            "quorate_set_aside_bytes",
            "Bytes of keys and values that are set aside after resets",
            ["zone"],
            registry=self.registry,
        )
        self.isolated = Gauge(
            "quorate_isolated",
            "1 while the zone is not served here: no operator had a report of this agent for its"
            " isolationTimeoutSeconds",
            ["zone"],
            registry=self.registry,
        )
        self.durable_turns = 0  # a plain int: the library's counter costs as much as a command
        self._syncs = Counter("quorate_syncs", "Durable writes of turns", registry=self.registry)
        self.heartbeat_seconds = Histogram(
            "quorate_heartbeat_seconds",
            "Time from a heartbeat to its answer; the lease it asks for ends after 1.9 s",
            buckets=HEARTBEAT_BUCKETS_S,
            registry=self.registry,
        )
        self.peer_bytes_in = Gauge(
            "quorate_peer_received_bytes", "Bytes from peers", registry=self.registry
        )
        self.peer_bytes_out = Gauge(
            "quorate_peer_sent_bytes", "Bytes to peers", registry=self.registry
        )
        self.strangers = Gauge(
            "quorate_peer_strangers_total",
            "Connections closed because the other side did not prove that it knows the secret",
            registry=self.registry,
        )
        self.unspoken = Gauge(
            "quorate_peer_messages_unspoken_total",
            "Messages not sent because the peer's version does not know them",
            registry=self.registry,
        )
        self.disk_free = Gauge(
            "quorate_disk_free_bytes",
            "Bytes free on the disk of the data folder",
            registry=self.registry,
        )
        self.disk_reserve = Gauge(
            "quorate_disk_reserve_bytes",
            "Bytes reserved there: with fewer free, writes that need room are refused",
            registry=self.registry,
        )

        self.client_memory = Gauge(
            "quorate_client_memory_bytes",
            "Memory held for clients: unanswered large commands, unread long replies",
            registry=self.registry,
        )
        self.client_memory_max = Gauge(
            "quorate_client_memory_max_bytes",
            "Budget of the memory held for clients",
            registry=self.registry,
        )
        self.client_memory_refused = Gauge(
            "quorate_client_memory_refused_total",
            "Large commands refused with -OOM because of that budget",
            registry=self.registry,
        )
        self.client_memory_closed = Gauge(
            "quorate_client_memory_closed_total",
            "Connections closed because they held the most when that budget was exceeded",
            registry=self.registry,
        )

    def measure_clients(self, memory: ClientMemory) -> None:
        """Set the gauges of what clients make the agent hold."""
        self.client_memory.set(memory.held)
        self.client_memory_max.set(memory.bytes_max)
        self.client_memory_refused.set(memory.refused)
        self.client_memory_closed.set(memory.closed)

    def measure(self, zones: Iterable[Replicas], counters: LinkCounters, disk: DiskRoom) -> None:
        """Set the gauges that are read from time to time."""
        disk.look()
        self.disk_free.set(disk.free)
        self.disk_reserve.set(disk.reserve)
        for replicas in zones:
            name = replicas.record.name
            self.primaries.labels(name).set(len(replicas.roles))
            self.copies.labels(name).set(copy_count(replicas))
            self.delta_copies.labels(name).set(replicas.delta_copies)
            self.storage_full.labels(name).set(bool(replicas.why_full))
            aside, aside_bytes = replicas.count_aside()
            self.aside.labels(name).set(aside)
            self.aside_bytes.labels(name).set(aside_bytes)
            self.isolated.labels(name).set(replicas.is_isolated)
            for reason, count in replicas.full_reasons.items():
                self.full_copies.labels(name, reason).set(count)
        self._syncs.inc(self.durable_turns)
        self.durable_turns = 0
        self.peer_bytes_in.set(counters.bytes_in)
        self.peer_bytes_out.set(counters.bytes_out)
        self.strangers.set(counters.strangers)
        self.unspoken.set(counters.unspoken)


def copy_count(replicas: Replicas) -> int:
    """Return the number of copies with data; a copy that was moved away leaves only its promise."""
    return sum(copy.present for copy in replicas.copies.values())
