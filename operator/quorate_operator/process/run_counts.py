"""Counts the runs of each zone that have ended, by kind and outcome, as a metric."""

import re
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Counter

from quorate.wire.jobs.job_run import RunPhase


class RunCounts:
    """The runs of the zones of one namespace.  `outcomes`: by kind, how a run that was not refused
    ends.

    Counts of a zone begin at 0 when its Zone is seen: of a series that begins at 1, Prometheus does
    not see that it has increased.  They go with the Zone.  Names of zones that nobody has declared
    are no labels: anyone may invent them.
    """

    def __init__(
        self, counter: Counter, namespace: str, outcomes: Mapping[str, Iterable[str]]
    ) -> None:
        self._counter = counter
        self._namespace = namespace
        self._outcomes = outcomes
        self._clusters: dict[str, str] = {}
        """By name of a zone that is declared."""

    def zone_seen(self, zone: str, cluster: str) -> None:
        """Take a Zone that is new or changed."""
        if self._clusters.get(zone) == cluster:
            return
        self.zone_gone(zone)
        self._clusters[zone] = cluster
        for series in self._series(zone):
            self._counter.labels(*series)

    def zone_gone(self, zone: str) -> None:
        """Forget the counts of a Zone that was deleted."""
        if zone in self._clusters:
            for series in self._series(zone):
                self._counter.remove(*series)
            del self._clusters[zone]

    def run_ended(self, kind: str, zone: str, outcome: str) -> None:
        """Count the end of a run, also of one that was refused."""
        if zone not in self._clusters:
            zone = ""
        cluster = self._clusters.get(zone, "")
        self._counter.labels(self._namespace, cluster, zone, kind, outcome_label(outcome)).inc()

    def close(self) -> None:
        """Forget the counts of all Zones: another operator sees which there are."""
        for zone in list(self._clusters):
            self.zone_gone(zone)

    def _series(self, zone: str) -> Iterator[tuple[str, ...]]:
        for kind, outcomes in self._outcomes.items():
            for outcome in (*outcomes, RunPhase.REFUSED):
                label = outcome_label(outcome)
                yield self._namespace, self._clusters[zone], zone, kind, label


def outcome_label(outcome: str) -> str:
    """Return an outcome as a label: `CouldNotTell` is `could_not_tell`."""
    return re.sub(r"(?<=.)(?=[A-Z])", "_", outcome).lower()
