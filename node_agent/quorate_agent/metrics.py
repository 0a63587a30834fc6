"""The agent's metrics: the only place where their names are spelled.

Counters are raised where something happens.  What the agent keeps anyway is read with each scrape.
docs/metrics.md is generated from these definitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.fill import FullReason
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.transactions.coordinator import Outcome
from quorate_agent.clients.memory import ClientMemory
from quorate_agent.clients.meter import (
    BOUNDS_S,
    EVERY_READ,
    CommandMeter,
    Result,
    Times,
    no_times,
)
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.folder.disk_use import DiskUse
from quorate_agent.machine.memory_limit import resident_bytes
from quorate_agent.resp.command import FAMILIES, READ, WRITE
from quorate_link import LinkCounters

PARKED_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

HEARTBEAT_BUCKETS_S = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 1.9, 5.0)
"""A lease lasts for 1.9 s from when its heartbeat was sent."""

LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

_OUTCOMES = [each.value for each in Outcome]


class Engine(Protocol):
    """The storage of one zone, as far as its size is concerned."""

    folder: Path | None
    """Where its files are; None if it has none."""

    @property
    def log_total(self) -> int:
        """The bytes of all update logs, approximately."""

    def memory_used(self) -> int:
        """Return roughly the bytes of memory in use."""


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
        self.loop_lag_seconds = Histogram(
            "quorate_loop_lag_seconds",
            "Seconds by which the event loop is late, at each of its ticks, 20 or more per second",
            buckets=LAG_BUCKETS_S,
            registry=self.registry,
        )
        self._meters: dict[str, CommandMeter] = {}  # by uid of the zone
        self._times_of_gone = Times(no_times)  # of the commands of zones that are no more
        self.durable_turns = 0  # a plain int: the library's counter costs as much as a command

    def meter(self, uid: str, clock: Callable[[], float]) -> CommandMeter:
        """Return what counts the commands of a zone."""
        meter = self._meters.get(uid)
        if meter is None:
            meter = self._meters[uid] = CommandMeter(clock)
        return meter

    def client_times(self, uid: str) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return how long the reads of a zone's clients took, and its writes: see messages.Copies.

        An unknown zone has none of either.
        """
        meter = self._meters.get(uid)
        times = meter.times if meter is not None else {}
        bounds = [*(round(bound * 1e6) for bound in BOUNDS_S), -1]
        counts = [times.get(family) or no_times() for family in (READ, WRITE)]
        return tuple(
            tuple((bound, int(many)) for bound, many in zip(bounds, each[:-1], strict=True) if many)
            for each in counts
        )

    def observe(
        self,
        zones: Callable[[], Iterable[Replicas]],
        engines: Mapping[str, Engine],
        is_led: Callable[[], bool],
        links: LinkCounters,
        disk: DiskRoom,
        memory: ClientMemory,
    ) -> None:
        """Export what the agent keeps anyway, as of the scrape.

        `engines`: the storage of zones, by uid.  `is_led`: whether a master is connected."""
        disk_use = DiskUse(disk.clock)

        def families() -> Iterator[Metric]:
            here = list(zones())
            yield from self._of_commands(here)
            yield from self._of_agent(is_led(), links, disk, memory)
            yield from _of_zones(here)
            yield from _of_logs(here)
            yield from _of_storage(here, engines, disk_use)

        self.registry.register(_Observed(families))

    def _of_commands(self, zones: Iterable[ZoneCopies]) -> Iterator[Metric]:
        names = {zone.record.uid: zone.record.name for zone in zones}
        for gone in self._meters.keys() - names.keys():
            _add_times(self._times_of_gone, self._meters.pop(gone).times)
        answered = CounterMetricFamily(
            "quorate_commands",
            f"Commands answered by family ({', '.join(FAMILIES)}) and result:"
            f" {', '.join(Result)}. Those between MULTI and EXEC count as transaction, a forwarded"
            " one at both agents",
            labels=["zone", "family", "result"],
        )
        times = Times(no_times)
        _add_times(times, self._times_of_gone)
        for uid, meter in self._meters.items():
            for (family, result), count in meter.counts().items():
                answered.add_metric([names[uid], family, result], count)
            _add_times(times, meter.times)
        yield answered
        yield _histogram(times)

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
            "quorate_disk_size_bytes", "Size of the disk of the data folder", disk.size
        )
        yield GaugeMetricFamily(
            "quorate_resident_memory_bytes",
            "Memory of the process that is resident",
            resident_bytes(),
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


def _add_times(times: Times, others: Times) -> None:
    for family, more in others.items():
        times[family] = [a + b for a, b in zip(times[family], more, strict=True)]


def _histogram(times: Times) -> Metric:
    taken = HistogramMetricFamily(
        "quorate_command_seconds",
        "Time from a command's arrival, when the agent has read it, until its reply is made, by"
        f" family. Of reads that are sent alone, one in {EVERY_READ} is timed, and counted as"
        " so many. A reply may then wait for earlier ones of its connection",
        labels=["family"],
    )
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for family, (*counts, seconds) in times.items():
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        taken.add_metric([family], buckets, seconds)
    return taken


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
    lag = GaugeMetricFamily(
        "quorate_replication_lag_updates",
        "Updates that another copy of a partition served here lacks: of the copy that lacks most,"
        " without those that are being filled",
        labels=["zone"],
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
        lag.add_metric(place, max(map(_lag, zone.roles.values()), default=0))
        storage_full.add_metric(place, bool(zone.why_full))
        copies_aside, bytes_aside = zone.count_aside()
        aside.add_metric(place, copies_aside)
        aside_bytes.add_metric(place, bytes_aside)
        isolated.add_metric(place, zone.is_isolated)
        for reason, count in zone.full_reasons.items():
            full_copies.add_metric([*place, reason], count)
    about_copies = [primaries, copies, full_copies, delta_copies, lag]
    return [*about_copies, storage_full, aside, aside_bytes, isolated]


def _of_logs(zones: Iterable[Replicas]) -> list[Metric]:
    seconds = GaugeMetricFamily(
        "quorate_log_reach_seconds",
        "Time for which a copy may have been away and still catches up from the logs of all"
        " partitions served here, instead of getting all rows: to the minute, at most 3600, at most"
        " since this process has the zone; no value without such partitions",
        labels=["zone"],
    )
    updates = GaugeMetricFamily(
        "quorate_log_reach_updates",
        "Updates that such a copy may lack: of the partition served here whose log has fewest, of"
        " those whose log was cut and written since; no value without such partitions",
        labels=["zone"],
    )
    size = GaugeMetricFamily(
        "quorate_log_reach_bytes",
        "The same in bytes of updates, of the partition whose log has fewest bytes",
        labels=["zone"],
    )
    for zone in zones:
        place = [zone.record.name]
        reach_ms = zone.upkeep.log_reach_ms()
        if reach_ms is not None:
            seconds.add_metric(place, reach_ms / 1000)
        copies = (role.copy for role in zone.roles.values())
        cut = [each for each in copies if 0 < each.log_from < each.lwm]
        if cut:
            updates.add_metric(place, min(each.lwm - each.log_from for each in cut))
            bytes_of = zone.storage.log_bytes
            found = (bytes_of(each.partition, each.log_from + 1, each.lwm) for each in cut)
            size.add_metric(place, min(found))
    return [seconds, updates, size]


def _of_storage(
    zones: Iterable[Replicas], engines: Mapping[str, Engine], disk_use: DiskUse
) -> list[Metric]:
    data = GaugeMetricFamily(
        "quorate_data_bytes",
        "Bytes of keys and values of the copies on this agent, without what is set aside",
        labels=["zone"],
    )
    log = GaugeMetricFamily(
        "quorate_log_bytes", "Bytes of the update logs of the copies on this agent", labels=["zone"]
    )
    memory = GaugeMetricFamily(
        "quorate_zone_memory_bytes",
        "Memory that the zone's storage takes, roughly: of an InMemory zone rows and logs, of a"
        " Persistent one write buffers and what is kept of its tables",
        labels=["zone"],
    )
    disk = GaugeMetricFamily(
        "quorate_zone_disk_bytes",
        "Bytes that the files of a Persistent zone take on the disk, with what is set aside;"
        " measured once a minute at most",
        labels=["zone"],
    )
    names = {zone.uid: zone.record.name for zone in zones if zone.uid in engines}
    for zone in zones:
        copies = zone.copies.values()
        data.add_metric(
            [zone.record.name], sum(each.space.byte_count() for each in copies if each.present)
        )
    for uid, name in names.items():
        log.add_metric([name], engines[uid].log_total)
        memory.add_metric([name], engines[uid].memory_used())
    folders = {uid: folder for uid in names if (folder := engines[uid].folder) is not None}
    for uid, used in disk_use.measure(folders).items():
        disk.add_metric([names[uid]], used)
    return [data, log, memory, disk]


def _lag(role: Primary) -> int:
    reached = role.copy.lwm
    return max([reached - peer.lwm for peer in role.peers.values() if peer.adopted], default=0)


def copy_count(zone: ZoneCopies) -> int:
    """Return the number of copies with data; a copy that was moved away leaves only its promise."""
    return sum(copy.present for copy in zone.copies.values())
