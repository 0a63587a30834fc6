"""Generate docs/metrics.md, every metric of agent and operator, or compare it (`--check`).

From the definitions in the code: a metric that is not in the page cannot be served.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from quorate_agent.clients.memory import ClientMemory
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.metrics import AgentMetrics
from quorate_link import LinkCounters
from quorate_operator.process.metrics import Metrics

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"
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

[The chart](../charts/quorate/README.md) has a PodMonitor, annotations for scrapers, and alerts.

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

LABELS: Mapping[str, str] = {
    "cluster": "name of the StorageCluster",
    "code": "HTTP status of the answer, or `none`",
    "kind": "kind of the declared object, or what is watched",
    "method": "HTTP method",
    "namespace": "namespace of the StorageCluster on Kubernetes, else empty",
    "outcome": "a word; the meaning of the metric lists them",
    "reason": "a word; of an event: those of [events.md](events.md)",
    "result": "a word; the meaning of the metric lists them",
    "state": "a word; the meaning of the metric lists them",
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
    metrics.observe(lambda: (), lambda: False, LinkCounters(), disk, memory)
    return described(metrics.registry)


def operator_metrics() -> list[Described]:
    """Every metric of an operator."""
    metrics = Metrics()
    none: Callable[[], float] = lambda: 0.0  # noqa: E731
    metrics.observe_queue(lambda: 0)
    metrics.observe_vitals(none, none, dict, none)
    metrics.observe(list)
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


def main() -> int:
    """Exit code 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description="Write docs/metrics.md.")
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if not PAGE.exists() or PAGE.read_text() != page():
        print(f"{PAGE}: not up to date: run make metrics")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
