"""`python -m quorate_sim.canaries`: planted defects must be found, and a table says how soon.

A simulator that finds nothing proves nothing: each rule of the protocol that is switched off has to
break something that a checker sees.  Ends with status 1 when one was not found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import get_context
from typing import NamedTuple

from quorate.facts.errors import InvariantError
from quorate_sim.faults import run_seed
from quorate_sim.planted import DEFECTS

SEEDS = 2000


class Hunt(NamedTuple):
    """The first seed that found a defect (None: none did), and what broke in it."""

    name: str
    seed: int | None
    broke: str
    seconds: float


def hunt(name: str, seeds: int = SEEDS) -> Hunt:
    """Run seeds with the defect until one notices."""
    started = time.monotonic()
    seed, broke = None, ""
    with DEFECTS[name]():
        for number in range(seeds):
            try:
                run_seed(number)
            except InvariantError as error:
                seed, broke = number, str(error)
                break
            except Exception as error:
                broke = f"a mistake in the defect itself, seed {number}: {error!r}"
                break
    return Hunt(name, seed, broke, time.monotonic() - started)


def checker(broke: str) -> str:
    """Which check a broken invariant's text comes from."""
    head = broke.split(":", 1)[0]
    if head == "not at rest":
        inside = next((part for part in ("I-6", "I-7", "I-10") if part in broke), "")
        return f"rest {inside}".strip()
    outside = head.startswith("I-") or head in ("not linearizable", "stuck", "tombstones")
    return head if outside else "core's own checks"


def main() -> int:
    """Answer 1 when a defect was not found."""
    parser = argparse.ArgumentParser(prog="python -m quorate_sim.canaries", description=__doc__)
    parser.add_argument("names", nargs="*", help="which defects (all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many until it is given up")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = options.names or sorted(DEFECTS)
    missed = []
    print(f"{'defect':34}{'found by':24}{'at seed':>8}  {'s':>5}  what broke")
    with get_context("fork").Pool(options.workers, maxtasksperchild=1) as pool:
        results = [pool.apply_async(hunt, (name, options.seeds)) for name in names]
        for result in results:
            found = result.get()
            if found.seed is None:
                missed.append(found.name)
            by = checker(found.broke) if found.seed is not None else "NOBODY"
            at = "-" if found.seed is None else str(found.seed)
            print(
                f"{found.name:34}{by:24}{at:>8}  {found.seconds:5.1f}  {found.broke[:70]}",
                flush=True,
            )
    if missed:
        print(f"not found within {options.seeds} seeds: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
