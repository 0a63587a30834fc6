"""`make bench`: what Quorate does on this machine, beside Redis; figures go to docs/benchmarks.md.

    make bench BENCH="--quick --only throughput,replicated"

Only a whole run that is not quick writes the page.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import machine
import measures
import report

ROOT = Path(__file__).parents[1]

MEASURES: dict[str, Callable[[measures.Size], report.Section]] = {
    "throughput": measures.one_agent_beside_redis,
    "replicated": measures.three_copies,
    "failover": measures.failover,
    "joining": measures.joining_agent,
    "master": measures.master,
    "memory": measures.memory,
}


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes, less exact")
    parser.add_argument("--only", default=",".join(MEASURES), help="some of: %(default)s")
    given = parser.parse_args()
    size = measures.QUICK if given.quick else measures.FULL
    names = given.only.split(",")
    where = machine.describe()
    sections = []
    for name in names:
        began = time.monotonic()
        section = MEASURES[name](size)
        sections.append(section)
        print(f"\n{section.markdown()}({time.monotonic() - began:.0f} s)", flush=True)
    if not given.quick and names == [*MEASURES]:
        page = ROOT / "docs" / "benchmarks.md"
        report.write(page, where, sections)
        print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
