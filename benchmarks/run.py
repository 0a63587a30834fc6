"""`make bench`: what Quorate does on this machine, beside Redis; figures go to docs/benchmarks.md.

    make bench BENCH="--quick --only cluster,mixed-on-disk"
    make bench BENCH="--only cluster --rounds 5 --write"

A whole run that is not quick writes the page, and so does `--write`; sections that were not
measured stay as they are.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from figures import machine, report
from figures.size import FULL, QUICK, Size
from sections import measures, memory, mixed, sizing
from sections.beside_cluster import beside_redis_cluster
from sections.rolling_restart import rolling_restart
from sections.write_modes import write_modes

MEASURES: dict[str, Callable[[Size], report.Section]] = {
    "mixed-in-memory": mixed.mixed_in_memory,
    "mixed-on-disk": mixed.mixed_on_disk,
    "write-modes": write_modes,
    "throughput": measures.one_agent_beside_redis,
    "cluster": beside_redis_cluster,
    "failover": measures.failover,
    "joining": measures.joining_agent,
    "restarts": rolling_restart,
    "master": measures.master,
    "memory": memory.one_process,
    "small-keys": memory.small_keys,
    "idle-connections": memory.idle_connections,
    "sizing-in-memory": sizing.keys_in_memory,
    "sizing-on-disk": sizing.keys_on_disk,
    "sizing-zones": sizing.zones,
}


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes, less exact")
    parser.add_argument("--only", default=",".join(MEASURES), help="some of: %(default)s")
    parser.add_argument("--rounds", type=int, help="how often each of what is compared runs")
    parser.add_argument("--write", action="store_true", help="write what was measured to the page")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    if given.rounds:
        size = replace(size, repeats=given.rounds)
    names = given.only.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    where = machine.describe()
    print(report.Section("Machine", "", ("what", "value"), [*where]).markdown(), flush=True)
    sections = []
    for name in names:
        measured, began = machine.moment(), time.monotonic()
        section = MEASURES[name](size)
        section.measured = measured
        sections.append(section)
        print(f"\n{section.markdown()}\n({time.monotonic() - began:.0f} s)", flush=True)
    if given.write or (not given.quick and names == [*MEASURES]):
        report.write(report.PAGE, where, sections)
        print(f"written: {report.PAGE.name}")


if __name__ == "__main__":
    main()
