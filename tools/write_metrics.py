"""Generate docs/metrics.md and docs/runbooks/README.md, or compare them (`--check`).

Every metric of agent and operator, from the definitions in the code, and every alert, from the file
that the chart makes a PrometheusRule of.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client import CollectorRegistry

from quorate_agent.clients.memory import ClientMemory
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.metrics import AgentMetrics
from quorate_link import LinkCounters
from quorate_operator.process.metrics import Metrics

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "docs" / "runbooks" / "README.md"
RULES = ROOT / "charts" / "quorate" / "files" / "alerts.yaml"
AGENT_SOURCE = "node_agent/quorate_agent/metrics.py"
OPERATOR_SOURCE = "operator/quorate_operator/process/metrics.py"

_HEAD = f"""# Metrics

<!-- Written by `make metrics`: change the texts in {AGENT_SOURCE} and
{OPERATOR_SOURCE}, not this file. -->

Agents and operators answer `GET /metrics` with text for Prometheus: managed agents and operators on
Kubernetes at port 8080, others at the address of `--admin` and `--health`. Units are seconds and
bytes. No label names a partition or a key: the number of series depends on the number of zones and
agents only. Counters begin at 0 with their process, or as their meaning says. Beside many counters
and histograms there is NAME`_created`, the time since when they count.

Histograms have fixed buckets, also for a scraper that asks for native histograms: Prometheus takes
those only in its protobuf format, which prometheus-client 0.26 cannot write; it cannot observe into
a native histogram either.

[Alerts](runbooks/README.md) are made of them.

## Labels

| label | its values |
| --- | --- |
"""
_OF_AGENT = """
## Agent

"""
_OF_OPERATOR = """
## Operator

Only the leading process reports what is labelled with `namespace` and `cluster`. A scraper that
sets `namespace` itself renames the label to `exported_namespace`, unless it is told to honour
labels, as the PodMonitor of the chart does.

"""

_HEAD_OF_ALERTS = """# Alerts

<!-- Written by `make metrics`: change charts/quorate/files/alerts.yaml, not this file. -->

Each alert has a page: what it means, how to look, what to do. The examples are in the namespace `storage`, with a cluster `main` and a zone
`books`. `kubectl quorate` has the commands of `quorate` for clusters on Kubernetes ([kubectl.md](../kubectl.md)).

**With the Prometheus operator**, set these values of [the chart](../../charts/quorate/README.md):

```yaml
monitoring:
  podMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
networkPolicy:
  prometheus: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
```

The labels are those by which your Prometheus chooses; `networkPolicy` matters with `networkPolicy.create` only.

**Without it**, give [alerts.yaml](../../charts/quorate/files/alerts.yaml) to Prometheus as it is (`rule_files`), and scrape every 15 s, 30 s at
most: port 8080 of operator and agents, with `honor_labels: true` for the operator and
[these labels](../dashboards.md#labels-they-need). For scrapers that go by annotations:
`monitoring.scrapeAnnotations: true` for the operator, and in the StorageCluster

```yaml
spec:
  managed:
    podTemplate:
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "8080"}
```

`quorate dev up --monitoring` prints a configuration that scrapes a cluster on your machine.

**One Prometheus, or ruler, per Kubernetes cluster**: the rules tell clusters apart by `namespace` and `cluster` only. If one Prometheus has the
metrics of two Kubernetes clusters, use other namespaces in each, for releases and for StorageClusters. Otherwise two that have the same names count as
one: `QuorateSeveralMasters` fires all the time, and `QuorateNoMaster` and `QuorateClusterNotLed` do not fire while one of the two is led.

Rules of the alerts are tested with promtool: each fires, resolves, and does not flap (`tests/unit/monitoring`). The validity of certificates is not
among them: agents and operator use none.

| alert | severity | says |
| --- | --- | --- |
"""  # noqa: E501
_SERIES = re.compile(r"\{\{[^}]*\}\}")

LABELS: Mapping[str, str] = {
    "class": "a word; the meaning of the metric lists them",
    "cluster": "name of the StorageCluster",
    "code": "HTTP status of the answer, or `none`",
    "family": "a word; the meaning of the metric lists them",
    "kind": "kind of the declared object, or what is watched",
    "method": "HTTP method",
    "namespace": "namespace of the StorageCluster on Kubernetes, else empty",
    "outcome": "a word; the meaning of the metric lists them",
    "reason": "a word; of an event: those of [events.md](events.md)",
    "result": "a word; the meaning of the metric lists them",
    "state": "a word; the meaning of the metric lists them",
    "verdict": "a word; the meaning of the metric lists them",
    "zone": "name of the Zone",
}
"""Each label, with what bounds the number of its values."""

UNITS = ("seconds", "bytes")


class Described(NamedTuple):
    """A metric as the page has it.  `name`: as it is served, of a counter with `_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def unit(self) -> str:
        """Its unit, which its name ends with; empty: a number of things."""
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in UNITS else ""


def agent_metrics() -> list[Described]:
    """Every metric of an agent."""
    metrics = AgentMetrics()
    disk, memory = DiskRoom(ROOT), ClientMemory()
    metrics.observe(lambda: (), {}, lambda: False, LinkCounters(), disk, memory)
    return described(metrics.registry)


def operator_metrics() -> list[Described]:
    """Every metric of an operator."""
    metrics = Metrics()
    none: Callable[[], float] = lambda: 0.0  # noqa: E731
    metrics.observe_queue(lambda: 0)
    metrics.observe_vitals(none, none, dict, none)
    metrics.observe(list)
    metrics.observe_verdicts(list)
    metrics.observe_exports(list)
    return described(metrics.registry)


def described(registry: CollectorRegistry) -> list[Described]:
    """The metrics of a registry, in the order of their definitions."""
    return [each for collector in registry._collector_to_names for each in _of(collector)]


def _of(collector: Any) -> Iterator[Described]:
    for family in collector.collect():
        # Label names are a metric's own, or those of each family.
        labels = (family if hasattr(family, "_labelnames") else collector)._labelnames
        name = family.name + ("_total" if family.type == "counter" else "")
        yield Described(name, family.type, tuple(labels), family.documentation)


def page() -> str:
    """The whole document."""
    agent, operator = agent_metrics(), operator_metrics()
    used = sorted({label for each in (*agent, *operator) for label in each.labels})
    labels = "".join(f"| `{label}` | {LABELS[label]} |\n" for label in used)
    return f"{_HEAD}{labels}{_OF_AGENT}{_table(agent)}{_OF_OPERATOR}{_table(operator)}"


def _table(metrics: Iterable[Described]) -> str:
    head = "| metric | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(
        f"| `{each.name}` | {each.kind} | {each.unit} | {_names(each.labels)} | {each.meaning} |\n"
        for each in metrics
    )


def _names(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def alerts() -> str:
    """The list of alerts."""
    rules = (
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    )
    return _HEAD_OF_ALERTS + "".join(
        f"| [{each['alert']}]({Path(each['annotations']['runbook_url']).name}) |"
        f" {each['labels']['severity']} | {_SERIES.sub('…', each['annotations']['summary'])} |\n"
        for each in rules
    )


def main() -> int:
    """Exit code 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description="Write docs/metrics.md and the list of alerts.")
    parser.add_argument("--check", action="store_true", help="only compare")
    is_check = parser.parse_args().check
    stale = False
    for path, text in ((PAGE, page()), (ALERTS, alerts())):
        if not is_check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path}: not up to date: run make metrics")
            stale = True
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
