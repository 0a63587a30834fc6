"""The operator's Prometheus metrics.  No per-partition labels: sizes must stay bounded.

docs/metrics.md is generated from these definitions.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from quorate.protocol.messages.events import Reason
from quorate.protocol.status import ClusterStatus, ZoneStatus
from quorate.wire.jobs.validation_result import DifferenceClass, ValidationVerdict
from quorate_operator import names
from quorate_operator.process.run_counts import outcome_label


class Led(NamedTuple):
    """A cluster that is led, as of a scrape.  `namespace`: empty without Kubernetes."""

    namespace: str
    cluster: str
    status: ClusterStatus
    is_blocked: bool = False
    """Whether nothing is decided, or decisions cannot be stored."""
    is_broken: bool = False
    """Whether it is not led any more because an invariant is broken."""


Clusters = Callable[[], Iterable[Led]]
"""The led clusters."""


class Verdict(Protocol):
    """The latest result of a zone's validations."""

    @property
    def ended(self) -> str:
        """The time of its end, RFC 3339."""

    @property
    def verdict(self) -> ValidationVerdict:
        """Whether copies agree."""

    @property
    def classes(self) -> Mapping[str, int]:
        """How many differ, by DifferenceClass."""


Verdicts = Callable[[], Iterable[tuple[str, str, str, Verdict]]]
"""Namespace, cluster and name of each zone that was validated, and its result."""


class Exports(Protocol):
    """The times of a zone's last backup and restore, RFC 3339; empty: there was none.

    Duration and rows are those of the last verified backup; None: not known.
    """

    @property
    def backup(self) -> str:
        """The beginning of the last verified backup."""

    @property
    def restore(self) -> str:
        """The end of the last verified restore."""

    @property
    def due(self) -> str:
        """The last but one time at which a schedule was to make a backup."""

    @property
    def backup_s(self) -> float | None:
        """Seconds from when the backup's Job was made until an operator saw its end."""

    @property
    def backup_rows(self) -> int | None:
        """Rows of the backup."""


ExportTimes = Callable[[], Iterable[tuple[str, str, str, Exports]]]
"""Namespace, cluster and name of each zone, and when it was backed up."""


class Metrics:
    """One registry per operator process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._led: dict[tuple[str, str], set[str]] = {}
        """Namespace and name of zones -> the ids of those that are led.  Zones of two clusters may
        have one name, at least until the data of the earlier one is gone."""
        self.is_master = Gauge(
            names.METRIC_IS_MASTER,
            "1 while this process may write ownership: it leads, and its lease has not lapsed",
            registry=self.registry,
        )
        self.writes = Counter(
            names.METRIC_METASTORE_WRITES,
            "Writes of ownership by outcome: written, conflict, refused, throttled, unknown",
            ["outcome"],
            registry=self.registry,
        )
        self.write_seconds = Histogram(
            names.METRIC_METASTORE_WRITE_SECONDS,
            "Duration of a write of ownership",
            registry=self.registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )
        self.events = Counter(
            names.METRIC_EVENTS,
            "Events by zone (empty: of the cluster) and reason. The end of a zone is counted for"
            " the cluster, and the zone's own counts go with it",
            ["namespace", "zone", "reason"],
            registry=self.registry,
        )
        self.refused_requests = Counter(
            names.METRIC_REFUSED_REQUESTS,
            "Requests to the operator's own API without the token, or from other web pages",
            registry=self.registry,
        )
        self.invariant_errors = Counter(
            names.METRIC_INVARIANT_ERRORS,
            "Broken invariants; the cluster is not led after one, or led again after a pause",
            registry=self.registry,
        )

        self.master_defects = Counter(
            names.METRIC_MASTER_DEFECTS,
            "Masters that a defect ended; the log has the reason",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.reconciles = Counter(
            names.METRIC_RECONCILES,
            "Reconciliations of declared objects by kind and result: done, failed",
            ["kind", "result"],
            registry=self.registry,
        )
        self.pass_seconds = Histogram(
            names.METRIC_PASS_SECONDS,
            "Duration of one pass over all clusters that are led",
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
        )
        self.runs_ended = Counter(
            names.METRIC_RUNS_ENDED,
            "Runs of a zone that ended, by kind and outcome: of a datavalidation agree, differ,"
            " could_not_tell; of a zonebackup or zonerestore complete, failed, unknown; of a"
            " zonerepair planned, nothing_to_repair, repaired, incomplete, failed, unknown; of all"
            " refused. Cluster and zone are empty if no Zone of that name is known (yet). What an"
            " operator that took over sees end before its first scrape shows no increase",
            ["namespace", "cluster", "zone", "kind", "outcome"],
            registry=self.registry,
        )
        self._queue_length = Gauge(
            names.METRIC_QUEUE,
            "Declared objects that wait for reconciliation",
            registry=self.registry,
        )

        self.api_requests = Counter(
            names.METRIC_API_REQUESTS,
            "Requests to the API server, the election's included, by method and HTTP status (none:"
            " no answer)",
            ["method", "code"],
            registry=self.registry,
        )

    def count_events(self, namespace: str, zone: str, reason: str, count: int = 1) -> None:
        """Count events of a zone (empty: of the cluster)."""
        self.events.labels(namespace, zone, reason).inc(count)

    def begin_losses(self, namespace: str, zone: str, uid: str) -> None:
        """Count lost data of a zone from 0 on: of a series that begins at 1, Prometheus does not
        see that it has increased."""
        self._led.setdefault((namespace, zone), set()).add(uid)
        for loss in (Reason.DATA_LOSS_ACCEPTED, Reason.PARTITION_LOST, Reason.STARTED_EMPTY):
            self.events.labels(namespace, zone, loss)

    def leave_zone(self, namespace: str, zone: str, uid: str) -> None:
        """Note that a zone is not led any more.  Its counts stay, as it may be led again."""
        left = self._led.pop((namespace, zone), set()) - {uid}
        if left:
            self._led[namespace, zone] = left

    def forget_zone(self, namespace: str, zone: str, uid: str) -> None:
        """Forget the counts of events of a zone that is gone, if no other one has its name."""
        self.leave_zone(namespace, zone, uid)
        if (namespace, zone) in self._led:
            return
        for reason in Reason:
            with suppress(KeyError):
                self.events.remove(namespace, zone, reason)

    def observe_queue(self, length: Callable[[], int]) -> None:
        """Export `length`, of the queue of declared objects, with every scrape."""
        self._queue_length.set_function(length)

    def observe_verdicts(self, verdicts: Verdicts) -> None:
        """Export the latest result of each zone's validations, as of the scrape."""
        self.registry.register(_Verdicts(verdicts))

    def observe_exports(self, times: ExportTimes) -> None:
        """Export when each zone was backed up and restored last, as of the scrape."""
        self.registry.register(_Exports(times))

    def observe_vitals(
        self,
        lease_age_s: Callable[[], float],
        loop_lag_s: Callable[[], float],
        watch_ages_s: Callable[[], Mapping[tuple[str, str], float]],
        requests_max: Callable[[], float],
    ) -> None:
        """Export what /healthz judges by, with every scrape."""
        Gauge(
            names.METRIC_LEASE_AGE,
            "Seconds since the last answered renewal of the lease began; 0: never held",
            registry=self.registry,
        ).set_function(lease_age_s)
        Gauge(
            names.METRIC_LOOP_LAG,
            "Seconds by which the event loop is late",
            registry=self.registry,
        ).set_function(loop_lag_s)
        Gauge(
            names.METRIC_API_REQUESTS_MAX,
            "Limit of concurrent requests to the API server; lower while it is slow",
            registry=self.registry,
        ).set_function(requests_max)
        self.registry.register(_WatchAges(watch_ages_s))

    def observe(self, clusters: Clusters) -> None:
        """Export the state of `clusters`, as of the scrape."""
        self.registry.register(_Observed(clusters))


class _Verdicts(Collector):
    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    def describe(self) -> Iterable[Metric]:
        """Return nothing: there are no zones yet when this is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return one sample per zone that was validated, of each verdict and each class."""
        in_zone = ["namespace", "cluster", "zone"]
        ended = GaugeMetricFamily(
            names.METRIC_VALIDATION_END,
            "End of the last validation of the zone, in seconds since 1970",
            labels=in_zone,
        )
        verdicts = GaugeMetricFamily(
            names.METRIC_VALIDATION_VERDICT,
            "1 for the verdict of the zone's last validation, 0 for the others: agree, differ,"
            " could_not_tell",
            labels=[*in_zone, "verdict"],
        )
        differences = GaugeMetricFamily(
            names.METRIC_VALIDATION_DIFFERENCES,
            "Differences that the zone's last validation found, by class: partitions (counter,"
            " lineage, gap; skipped: not judged) or keys (keyCounter, value, size, expiry, missing,"
            " other)",
            labels=[*in_zone, "class"],
        )
        for namespace, cluster, zone, verdict in self._verdicts():
            place = [namespace, cluster, zone]
            ended.add_metric(place, datetime.fromisoformat(verdict.ended).timestamp())
            for each in ValidationVerdict:
                verdicts.add_metric([*place, outcome_label(each)], each is verdict.verdict)
            for of in DifferenceClass:
                differences.add_metric([*place, of.value], verdict.classes.get(of.value, 0))
        return [ended, verdicts, differences]


class _Exports(Collector):
    def __init__(self, times: ExportTimes) -> None:
        self._times = times

    def describe(self) -> Iterable[Metric]:
        """Return nothing: there are no zones yet when this is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return one sample per zone of each time and figure that there is."""
        in_zone = ["namespace", "cluster", "zone"]
        backup = GaugeMetricFamily(
            names.METRIC_BACKUP_TIME,
            "Beginning of the last verified ZoneBackup of the zone, in seconds since 1970: what was"
            " acknowledged before is in it",
            labels=in_zone,
        )
        due = GaugeMetricFamily(
            names.METRIC_BACKUP_DUE,
            "The last but one time of the zone's ScheduledZoneBackups, in seconds since 1970;"
            " absent while there is no schedule, or it is suspended",
            labels=in_zone,
        )
        restore = GaugeMetricFamily(
            names.METRIC_RESTORE_END,
            "End of the last ZoneRestore of the zone that was complete and compared, in seconds"
            " since 1970",
            labels=in_zone,
        )
        duration = GaugeMetricFamily(
            names.METRIC_BACKUP_DURATION,
            "Time from when the Job of the last verified ZoneBackup of the zone was made until an"
            " operator saw its end: also that in which it waited for its pod, or no operator led;"
            " absent if its object was deleted before this operator began",
            labels=in_zone,
        )
        rows = GaugeMetricFamily(
            names.METRIC_BACKUP_ROWS,
            "Rows of the last verified ZoneBackup of the zone; absent as the duration is",
            labels=in_zone,
        )
        for namespace, cluster, zone, times in self._times():
            for figures, figure in ((duration, times.backup_s), (rows, times.backup_rows)):
                if figure is not None:
                    figures.add_metric([namespace, cluster, zone], figure)
            for family, time in (
                (backup, times.backup),
                (due, times.due),
                (restore, times.restore),
            ):
                if time:
                    seconds = datetime.fromisoformat(time).timestamp()
                    family.add_metric([namespace, cluster, zone], seconds)
        return [backup, due, restore, duration, rows]


class _WatchAges(Collector):
    def __init__(self, ages_s: Callable[[], Mapping[tuple[str, str], float]]) -> None:
        self._ages_s = ages_s

    def describe(self) -> Iterable[Metric]:
        """Return nothing: there are no watches yet when this is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return one sample for each kind that is watched."""
        family = GaugeMetricFamily(
            names.METRIC_WATCH_AGE,
            "Seconds since the watch of a kind last showed a sign of life, at most about 60 while"
            " all is well; namespace: the watched one, empty: all namespaces, or Nodes",
            labels=["namespace", "kind"],
        )
        for watch, age_s in self._ages_s().items():
            family.add_metric(watch, age_s)
        return [family]


class _Observed(Collector):
    """States and counts that the masters keep themselves."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def describe(self) -> Iterable[Metric]:
        """Return nothing: there are no masters yet when this is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return all families, with one sample per cluster, zone and state."""
        in_cluster = ["namespace", "cluster"]
        in_zone = [*in_cluster, "zone"]
        term = GaugeMetricFamily(names.METRIC_MASTER_TERM, "Term of the master", labels=in_cluster)
        blocked = GaugeMetricFamily(
            names.METRIC_BLOCKED,
            "1 while decisions cannot be stored, or a defect has ended the master: no failover and"
            " no migration is carried out",
            labels=in_cluster,
        )
        broken = GaugeMetricFamily(
            names.METRIC_INVARIANT_BROKEN,
            "1 while the cluster is not led because an invariant is broken",
            labels=in_cluster,
        )
        nodes = GaugeMetricFamily(
            names.METRIC_NODES,
            "Agents by state: Online, Offline, Draining, Leaving, Cordoned",
            labels=[*in_cluster, "state"],
        )
        partitions = GaugeMetricFamily(
            names.METRIC_PARTITIONS,
            "Partitions by state: available, degraded (copies are missing), unavailable",
            labels=[*in_zone, "state"],
        )
        unavailable = GaugeMetricFamily(
            names.METRIC_UNAVAILABLE,
            "Partitions that no primary serves: read_only, lost, or waiting (neither)",
            labels=[*in_zone, "state"],
        )
        migrations = GaugeMetricFamily(
            names.METRIC_MIGRATIONS,
            "Migrations under way: running, queued",
            labels=[*in_zone, "state"],
        )
        ended = CounterMetricFamily(
            names.METRIC_MIGRATIONS_ENDED,
            "Migrations since this master began, by outcome: done, failed, cancelled",
            labels=[*in_zone, "outcome"],
        )
        moved = CounterMetricFamily(
            names.METRIC_BYTES_MOVED, "Bytes moved since this master began", labels=in_zone
        )
        wasted = CounterMetricFamily(
            names.METRIC_BYTES_WASTED,
            "Bytes moved by migrations that did not commit, since this master began",
            labels=in_zone,
        )
        failovers = CounterMetricFamily(
            names.METRIC_FAILOVERS,
            "Partitions that another primary, or another process of it, took over without a"
            " hand-over, a reset or a decision of a person, since this master began",
            labels=in_zone,
        )
        full = GaugeMetricFamily(
            names.METRIC_FULL_AGENTS, "Agents without room for more of the zone", labels=in_zone
        )
        refusing = GaugeMetricFamily(
            names.METRIC_REFUSING_AGENTS,
            "Agents that are online and cannot open the zone",
            labels=in_zone,
        )
        stuck = GaugeMetricFamily(
            names.METRIC_STUCK_MIGRATIONS,
            "Migrations that failed at least three times in succession and are tried again",
            labels=in_zone,
        )
        loss = GaugeMetricFamily(
            names.METRIC_DATA_LOSS_ACCEPTED,
            "1 after partitions narrowed to one copy, until all their copies are back",
            labels=in_zone,
        )
        for namespace, cluster, status, is_blocked, is_broken in self._clusters():
            term.add_metric([namespace, cluster], status.master_term)
            blocked.add_metric([namespace, cluster], is_blocked)
            broken.add_metric([namespace, cluster], is_broken)
            states = [node.state for node in status.nodes]
            for state in sorted(set(states)):
                nodes.add_metric([namespace, cluster, state], states.count(state))
            for zone in status.zones:
                place = [namespace, cluster, zone.name]
                for state, count in _partition_states(zone):
                    partitions.add_metric([*place, state], count)
                for state, count in _unavailable(zone):
                    unavailable.add_metric([*place, state], count)
                migrations.add_metric([*place, "running"], zone.migrations_running)
                migrations.add_metric([*place, "queued"], zone.migrations_queued)
                ended.add_metric([*place, "done"], zone.migrations_done)
                ended.add_metric([*place, "failed"], zone.migrations_failed)
                ended.add_metric([*place, "cancelled"], zone.migrations_cancelled)
                moved.add_metric(place, zone.bytes_moved)
                wasted.add_metric(place, zone.bytes_wasted)
                failovers.add_metric(place, zone.failovers)
                full.add_metric(place, len(zone.full))
                refusing.add_metric(place, len({agent for agent, _ in zone.refusals}))
                stuck.add_metric(place, len(zone.stuck))
                loss.add_metric(place, bool(zone.data_loss))
        about_agents = [full, refusing]
        about_migrations = [migrations, stuck, ended, moved, wasted]
        about_service = [partitions, unavailable, failovers, loss]
        about_cluster = [term, blocked, broken, nodes]
        return [*about_cluster, *about_service, *about_migrations, *about_agents]


def _partition_states(zone: ZoneStatus) -> list[tuple[str, int]]:
    return [
        ("available", zone.available),
        ("degraded", zone.degraded),
        ("unavailable", zone.unavailable),
    ]


def _unavailable(zone: ZoneStatus) -> list[tuple[str, int]]:
    return [
        ("read_only", zone.read_only),
        ("waiting", zone.unavailable - zone.read_only - zone.lost),
        ("lost", zone.lost),
    ]
