"""The load of a cluster: rates, times and lags, from two readings of its processes' metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from quorate.facts.quantile import quantile

READ, WRITE, OK = "read", "write", "ok"
"""Values of labels of `quorate_commands_total`; other families are shown together."""
TIMED = (0.5, 0.99)

Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]
"""Name of the series -> its labels -> value."""


class Reading(NamedTuple):
    """The metrics of all processes at one moment; `at_s` on a clock that never goes back.

    `problems`: why there are none of an agent; `operator_problem`: why none of an operator."""

    at_s: float
    agents: Mapping[str, Samples]
    operator: Samples
    problems: Mapping[str, str]
    operator_problem: str = ""


class CommandRates(msgspec.Struct, frozen=True, kw_only=True):
    """Commands per second; `failed`: those not answered OK, of all families."""

    reads: float = 0.0
    writes: float = 0.0
    others: float = 0.0
    failed: float = 0.0


class AgentLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One agent.

    `read_s`, `write_s`: median and p99 of the time of reads and writes, null if there were none.
    `led`: whether a master leads it.  `problem`: why nothing else is known of it, else empty."""

    name: str
    problem: str = ""
    led: bool = False
    rates: CommandRates = CommandRates()
    read_s: tuple[float, float] | None = None
    write_s: tuple[float, float] | None = None
    connections: int = 0
    lag_updates: int = 0
    memory_bytes: int = 0
    client_memory_bytes: int = 0
    client_memory_max_bytes: int = 0
    disk_free_bytes: int = 0


class ZoneLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One zone.  Partitions and migrations are null while no operator tells them."""

    name: str
    rates: CommandRates
    lag_updates: int
    available: int | None = None
    degraded: int | None = None
    unavailable: int | None = None
    migrations_running: int | None = None
    migrations_queued: int | None = None
    moved_bytes_per_s: float | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, over `seconds`.  `operator_problem`: why no operator tells of partitions and
    migrations, else empty."""

    seconds: float
    operator_problem: str = ""
    agents: list[AgentLoad]
    zones: list[ZoneLoad]


def parse(text: str) -> Samples:
    """Return the samples of a process's metrics."""
    # Imported here: it takes long, and few commands read metrics.
    from prometheus_client.parser import text_string_to_metric_families

    found: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found


def load_between(before: Reading, after: Reading) -> Load:
    """Return what happened between two readings, and the state at the second one."""
    seconds = max(after.at_s - before.at_s, 0.001)
    grown = {
        name: _grown(before.agents[name], samples)
        for name, samples in after.agents.items()
        if name in before.agents
    }
    agents = [
        _agent(name, after, grown.get(name), seconds)
        for name in sorted({*after.agents, *after.problems})
    ]
    moved = _grown(before.operator, after.operator) if before.operator else {}
    return Load(
        seconds=seconds,
        operator_problem=after.operator_problem,
        agents=agents,
        zones=_zones(after, grown.values(), moved, seconds),
    )


def _grown(before: Samples, after: Samples) -> Samples:
    """Return by how much each series has grown; one that is lower has begun again at 0."""
    found: dict[str, dict[Labels, float]] = {}
    for name, series in after.items():
        earlier = before.get(name, {})
        found[name] = {
            labels: value - was if value >= (was := earlier.get(labels, 0.0)) else value
            for labels, value in series.items()
        }
    return found


def _agent(name: str, after: Reading, grown: Samples | None, seconds: float) -> AgentLoad:
    samples = after.agents.get(name)
    if samples is None:
        return AgentLoad(name=name, problem=after.problems[name])
    if grown is None:
        return AgentLoad(name=name, problem="read once so far: rates take two readings")

    def state(metric: str) -> int:
        return int(sum(samples.get(metric, {}).values()))

    return AgentLoad(
        name=name,
        led=state("quorate_master_connected") > 0,
        rates=_rates([grown], seconds),
        read_s=_times(grown, READ),
        write_s=_times(grown, WRITE),
        connections=state("quorate_client_connections"),
        lag_updates=int(max(samples.get(LAG, {}).values(), default=0)),
        memory_bytes=state("quorate_resident_memory_bytes"),
        client_memory_bytes=state("quorate_client_memory_bytes"),
        client_memory_max_bytes=state("quorate_client_memory_max_bytes"),
        disk_free_bytes=state("quorate_disk_free_bytes"),
    )


LAG = "quorate_replication_lag_updates"


def _rates(agents: Iterable[Samples], seconds: float, zone: str = "") -> CommandRates:
    """Return the rates of all commands, or of those of one zone."""
    by_family: defaultdict[str, float] = defaultdict(float)
    failed = 0.0
    for grown in agents:
        for series, count in grown.get("quorate_commands_total", {}).items():
            labels = dict(series)
            if zone in ("", labels["zone"]):
                by_family[labels["family"]] += count
                failed += count if labels["result"] != OK else 0.0
    reads, writes = by_family.pop(READ, 0.0), by_family.pop(WRITE, 0.0)
    return CommandRates(
        reads=reads / seconds,
        writes=writes / seconds,
        others=sum(by_family.values()) / seconds,
        failed=failed / seconds,
    )


def _times(grown: Samples, family: str) -> tuple[float, float] | None:
    """Return the quantiles TIMED of a family's times; None if it had no commands."""
    buckets = sorted(
        (float(labels["le"]), count)
        for series, count in grown.get("quorate_command_seconds_bucket", {}).items()
        if (labels := dict(series))["family"] == family
    )
    if not buckets or not buckets[-1][1]:
        return None
    middle, high = (quantile(share, buckets) for share in TIMED)
    return middle, high


def _zones(
    after: Reading, grown: Iterable[Samples], moved: Samples, seconds: float
) -> list[ZoneLoad]:
    agents = list(grown)
    states = after.operator
    zones: defaultdict[str, int] = defaultdict(int)
    for samples in after.agents.values():
        for series, lag in samples.get(LAG, {}).items():
            zone = dict(series)["zone"]
            zones[zone] = max(zones[zone], int(lag))
    partitions = _by_zone(states, "quorate_operator_partitions", "state")
    migrations = _by_zone(states, "quorate_operator_migrations", "state")
    bytes_moved = _by_zone(moved, "quorate_operator_moved_bytes_total")
    return [
        ZoneLoad(
            name=zone,
            rates=_rates(agents, seconds, zone),
            lag_updates=zones.get(zone, 0),
            available=_count(partitions, zone, "available"),
            degraded=_count(partitions, zone, "degraded"),
            unavailable=_count(partitions, zone, "unavailable"),
            migrations_running=_count(migrations, zone, "running"),
            migrations_queued=_count(migrations, zone, "queued"),
            moved_bytes_per_s=bytes_moved[zone][""] / seconds if zone in bytes_moved else None,
        )
        for zone in sorted({*zones, *partitions})
    ]


def _by_zone(samples: Samples, metric: str, label: str = "") -> dict[str, dict[str, float]]:
    """Return the values of a metric by zone, and by a further label."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for series, value in samples.get(metric, {}).items():
        labels = dict(series)
        found[labels["zone"]][labels.get(label, "")] = value
    return found


def _count(values: Mapping[str, Mapping[str, float]], zone: str, state: str) -> int | None:
    found = values.get(zone, {}).get(state)
    return None if found is None else int(found)
