"""Measure writes in each consistency and write mode, in memory and on disk."""

from functools import partial
from typing import Any

from figures.report import Section
from figures.rounds import alternate, cells
from figures.size import PARTITIONS, Size

from quorate_cluster.cluster import Cluster
from quorate_cluster.mixed_load import Share, fill
from sections.mixed import PIPELINES, PROCESSES, run

MODES: dict[str, dict[str, Any]] = {
    "STRONG_CONSISTENCY": {"consistencyMode": "STRONG_CONSISTENCY"},
    "HIGH_AVAILABILITY, FULL_SYNC": {
        "consistencyMode": "HIGH_AVAILABILITY",
        "writeMode": "FULL_SYNC",
    },
    "HIGH_AVAILABILITY, PRIMARY_SYNC": {
        "consistencyMode": "HIGH_AVAILABILITY",
        "writeMode": "PRIMARY_SYNC",
    },
}
STORAGES: dict[str, dict[str, Any]] = {
    "in memory": {"storage": "InMemory"},
    "on disk, Always": {"storage": "Persistent", "syncWrites": "Always"},
}
LOAD = "SET"


def write_modes(size: Size) -> Section:
    """SET in zones that differ in who must have a write before it is answered."""
    section = Section(
        "Write modes",
        "SET as in the mixed loads, in one zone for each mode, on the same three agents with three"
        " copies. A write is answered when two copies have it (STRONG_CONSISTENCY), two copies and"
        " every online owner (FULL_SYNC), or the primary alone (PRIMARY_SYNC). The ratio is the"
        f" rate over that of FULL_SYNC in the same round. {size.repeats} rounds, each run"
        f" {size.mixed_s:g} s.",
        ("storage", "pipeline", "mode", "commands/s", "p50", "p99", "CPU s", "rate ratio"),
    )
    for storage, fields in STORAGES.items():
        with Cluster(agents=3) as cluster:
            pids = [agent.pid for agent in cluster.agents.values()]
            ports = {}
            for number, (mode, more) in enumerate(MODES.items()):
                zone = f"z{number}"
                cluster.apply_zone(zone, partitions=PARTITIONS, replicas=3, **fields, **more)
                cluster.wait_quiet(zone)
                ports[mode] = cluster.port(zone, "agent-1")
                shares = [Share(each, PROCESSES, size.mixed_scale) for each in range(PROCESSES)]
                fill(ports[mode], shares, (LOAD,))
            for pipeline in PIPELINES:
                sides = {
                    mode: partial(run, port, pids, LOAD, pipeline, size)
                    for mode, port in ports.items()
                }
                found = alternate(f"{LOAD} {storage}, pipeline {pipeline}", size.repeats, sides)
                base = found["HIGH_AVAILABILITY, FULL_SYNC"]
                for mode, runs in found.items():
                    beside = None if runs is base else base
                    section.add(storage, str(pipeline), mode, *cells(runs, beside))
    return section
