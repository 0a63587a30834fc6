"""What the operator counts, for Prometheus.  No per-partition labels: sizes must stay bounded."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from quorate.protocol.status import ClusterStatus
from quorate_operator import names


class Metrics:
    """One registry per operator process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_master = Gauge(
            names.METRIC_IS_MASTER,
            "1 while this process may write ownership",
            registry=self.registry,
        )
        self.writes = Counter(
            names.METRIC_METASTORE_WRITES,
            "Writes of ownership by outcome: written, conflict, unknown",
            ["outcome"],
            registry=self.registry,
        )
        self.write_seconds = Histogram(
            names.METRIC_METASTORE_WRITE_SECONDS,
            "How long a write of ownership took",
            registry=self.registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )
        self.events = Counter(
            names.METRIC_EVENTS, "Decisions by reason", ["reason"], registry=self.registry
        )
        self.invariant_errors = Counter(
            names.METRIC_INVARIANT_ERRORS,
            "States that must not exist; a cluster stops being led after one",
            registry=self.registry,
        )
        self._term = Gauge(
            names.METRIC_MASTER_TERM, "Term of the master", ["cluster"], registry=self.registry
        )
        self._nodes = Gauge(
            names.METRIC_NODES, "Agents by state", ["cluster", "state"], registry=self.registry
        )
        self._partitions = Gauge(
            names.METRIC_PARTITIONS,
            "Partitions by state",
            ["cluster", "zone", "state"],
            registry=self.registry,
        )
        self._migrations = Gauge(
            names.METRIC_MIGRATIONS,
            "Migrations by state",
            ["cluster", "zone", "state"],
            registry=self.registry,
        )
        self._done = Gauge(
            names.METRIC_MIGRATIONS_DONE,
            "Migrations since this master began, by outcome",
            ["cluster", "zone", "outcome"],
            registry=self.registry,
        )
        self._bytes = Gauge(
            names.METRIC_BYTES_MOVED,
            "Bytes moved since this master began",
            ["cluster", "zone"],
            registry=self.registry,
        )

    def observe(self, clusters: Iterable[tuple[str, ClusterStatus]]) -> None:
        """Set everything that is a state; called before a scrape is answered."""
        for gauge in (self._term, self._nodes, self._partitions, self._migrations, self._done):
            gauge.clear()
        self._bytes.clear()
        for cluster, status in clusters:
            self._term.labels(cluster).set(status.master_term)
            for state in sorted({node.state for node in status.nodes}):
                count = sum(node.state == state for node in status.nodes)
                self._nodes.labels(cluster, state).set(count)
            for zone in status.zones:
                states = {
                    "available": zone.available,
                    "degraded": zone.degraded,
                    "unavailable": zone.unavailable,
                }
                for state, count in states.items():
                    self._partitions.labels(cluster, zone.name, state).set(count)
                self._migrations.labels(cluster, zone.name, "running").set(zone.migrations_running)
                self._migrations.labels(cluster, zone.name, "queued").set(zone.migrations_queued)
                self._done.labels(cluster, zone.name, "done").set(zone.migrations_done)
                self._done.labels(cluster, zone.name, "failed").set(zone.migrations_failed)
                self._bytes.labels(cluster, zone.name).set(zone.bytes_moved)
