"""The agent's metrics: the only place where their names are spelled.

Counters are raised where something happens.  What the agent keeps anyway is read with each scrape.
docs/metrics.md is generated from these definitions.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from quorate.protocol.copies.fill import FullReason
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.transactions.coordinator import Outcome
from quorate_agent.clients.memory import ClientMemory
from quorate_agent.folder.disk_room import DiskRoom
from quorate_link import LinkCounters

PARKED_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

HEARTBEAT_BUCKETS_S = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 1.9, 5.0)
"""A lease lasts for 1.9 s from when its heartbeat was sent."""

_OUTCOMES = [each.value for each in Outcome]


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
            "Commands answered with CLUSTERDOWN: they waited for a primary in vain",
            registry=self.registry,
        )
        self.unknown = Counter(
            "quorate_commands_unknown",
            "Writes answered with UNKNOWN: their outcome cannot be determined",
            registry=self.registry,
        )
        self.transactions = Counter(
            "quorate_transactions",
            f"Transactions over several partitions by outcome: {', '.join(_OUTCOMES)}",
            ["outcome"],
            registry=self.registry,
        )
        self.heartbeat_seconds = Histogram(
            "quorate_heartbeat_seconds",
            "Time from a heartbeat to its answer; the lease it asks for ends after 1.9 s",
            buckets=HEARTBEAT_BUCKETS_S,
            registry=self.registry,
        )
        self.durable_turns = 0  # a plain int: the library's counter costs as much as a command

    def observe(
        self,
        zones: Callable[[], Iterable[ZoneCopies]],
        is_led: Callable[[], bool],
        links: LinkCounters,
        disk: DiskRoom,
        memory: ClientMemory,
    ) -> None:
        """Export what the agent keeps anyway, as of the scrape.

        `is_led`: whether a master is connected."""
        self.registry.register(
            _Observed(lambda: [*self._of_agent(is_led(), links, disk, memory), *_of_zones(zones())])
        )

    def _of_agent(
        self, is_led: bool, links: LinkCounters, disk: DiskRoom, memory: ClientMemory
    ) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "quorate_master_connected", "1 while a master leads this agent", is_led
        )
        yield CounterMetricFamily(
            "quorate_syncs",
            "Times that updates were made durable, those of many commands together",
            self.durable_turns,
        )
        yield CounterMetricFamily("quorate_peer_received_bytes", "Bytes from peers", links.bytes_in)
        yield CounterMetricFamily("quorate_peer_sent_bytes", "Bytes to peers", links.bytes_out)
        yield CounterMetricFamily(
            "quorate_peer_strangers",
            "Connections closed because the other side did not prove that it knows the secret",
            links.strangers,
        )
        yield CounterMetricFamily(
            "quorate_peer_messages_unspoken",
            "Messages not sent because the peer's version does not know them",
            links.unspoken,
        )
        disk.look()
        yield GaugeMetricFamily(
            "quorate_disk_free_bytes", "Bytes free on the disk of the data folder", disk.free
        )
        yield GaugeMetricFamily(
            "quorate_disk_reserve_bytes",
            "Bytes reserved on that disk: with fewer free, writes that need room are refused",
            disk.reserve,
        )
        yield GaugeMetricFamily(
            "quorate_client_memory_bytes",
            "Memory held for clients: unanswered large commands, unread long replies",
            memory.held,
        )
        yield GaugeMetricFamily(
            "quorate_client_memory_max_bytes",
            "Budget of the memory held for clients",
            memory.bytes_max,
        )
        yield CounterMetricFamily(
            "quorate_client_memory_refused",
            "Large commands refused with -OOM because the budget was exceeded",
            memory.refused,
        )
        yield CounterMetricFamily(
            "quorate_client_memory_closed",
            "Connections closed because they held the most when the budget was exceeded",
            memory.closed,
        )


class _Observed(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return all families, as of now."""
        return self._families()


def _of_zones(zones: Iterable[ZoneCopies]) -> list[Metric]:
    primaries = GaugeMetricFamily(
        "quorate_primaries", "Partitions this agent serves", labels=["zone"]
    )
    copies = GaugeMetricFamily("quorate_copies", "Copies on this agent", labels=["zone"])
    full_copies = CounterMetricFamily(
        "quorate_full_copies",
        f"Full copies by reason: {', '.join(FullReason)}",
        labels=["zone", "reason"],
    )
    delta_copies = CounterMetricFamily(
        "quorate_delta_copies", "Copies that caught up from the log", labels=["zone"]
    )
    storage_full = GaugeMetricFamily(
        "quorate_storage_full",
        "1 while there is no room for more of the zone, and writes are refused",
        labels=["zone"],
    )
    aside = GaugeMetricFamily(
        "quorate_set_aside_copies",
        "Copies of which rows are set aside after resets",
        labels=["zone"],
    )
    aside_bytes = GaugeMetricFamily(
        "quorate_set_aside_bytes",
        "Bytes of keys and values that are set aside after resets",
        labels=["zone"],
    )
    isolated = GaugeMetricFamily(
        "quorate_isolated",
        "1 while the zone is not served here: no operator had a report of this agent for its"
        " isolationTimeoutSeconds",
        labels=["zone"],
    )
    for zone in zones:
        place = [zone.record.name]
        primaries.add_metric(place, len(zone.roles))
        copies.add_metric(place, copy_count(zone))
        delta_copies.add_metric(place, zone.delta_copies)
        storage_full.add_metric(place, bool(zone.why_full))
        copies_aside, bytes_aside = zone.count_aside()
        aside.add_metric(place, copies_aside)
        aside_bytes.add_metric(place, bytes_aside)
        isolated.add_metric(place, zone.is_isolated)
        for reason, count in zone.full_reasons.items():
            full_copies.add_metric([*place, reason], count)
    about_copies = [primaries, copies, full_copies, delta_copies]
    return [*about_copies, storage_full, aside, aside_bytes, isolated]


def copy_count(zone: ZoneCopies) -> int:
    """Return the number of copies with data; a copy that was moved away leaves only its promise."""
    return sum(copy.present for copy in zone.copies.values())
