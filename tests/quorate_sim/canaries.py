"""`python -m quorate_sim.canaries`: planted defects must be found, and a table says how soon.

A simulator that finds nothing proves nothing: each rule of the protocol that is switched off has to
break something that a checker sees.  Ends with status 1 when one was not found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from typing import NamedTuple

from quorate.facts.errors import InvariantError
from quorate_sim.faults import run_seed
from quorate_sim.planted import DEFECTS, STORIES

SEEDS = 2000


class Hunt(NamedTuple):
    """What found a defect: its first seed, or its story; neither: nothing did.  And what broke."""

    name: str
    seed: int | None
    broke: str
    seconds: float
    by_story: bool = False

    @property
    def is_found(self) -> bool:
        """Whether anything noticed."""
        return self.seed is not None or self.by_story


def hunt(name: str, seeds: int = SEEDS, first: int = 0) -> Hunt:
    """Run the defect's story, or without one seeds with the defect until one notices.

    `first` is tried before the others: the one that noticed the last time."""
    started = time.monotonic()
    if name in STORIES:
        by_story, broke = _tell(name)
        return Hunt(name, None, broke, time.monotonic() - started, by_story)
    seed, broke = None, ""
    with DEFECTS[name]():
        for number in sorted(range(seeds), key=lambda seed: seed != first):
            try:
                run_seed(number)
            except InvariantError as error:
                seed, broke = number, str(error)
                break
            except Exception as error:
                broke = f"a mistake in the defect itself, seed {number}: {error!r}"
                break
    return Hunt(name, seed, broke, time.monotonic() - started)


def _tell(name: str) -> tuple[bool, str]:
    """Tell the story with the rule on, when it must hold, and off; whether it broke, and how."""
    story = STORIES[name]
    try:
        story()
    except Exception as error:
        return False, f"the story fails without the defect: {error!r}"
    try:
        with DEFECTS[name]():
            story()
    except (InvariantError, AssertionError) as error:
        return True, str(error)
    except Exception as error:
        return False, f"a mistake in the defect itself, in its story: {error!r}"
    return False, "the story holds with the defect"


def checker(broke: str) -> str:
    """Which check a broken invariant's text comes from."""
    head = broke.split(":", 1)[0]
    if head == "not at rest":
        parts = ("I-6", "I-7", "I-10", "spread", "weights", "target")
        inside = next((part for part in parts if f"{part}: " in broke), "")
        return f"rest {inside}".strip()
    outside = head.startswith("I-") or head in ("not linearizable", "reset", "stuck", "tombstones")
    return head if outside else "core's own checks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer 1 when a defect was not found."""
    parser = argparse.ArgumentParser(prog="python -m quorate_sim.canaries", description=__doc__)
    parser.add_argument("names", nargs="*", help="which defects (all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many until it is given up")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names = options.names or sorted(DEFECTS)
    missed = []
    print(f"{'defect':34}{'found by':24}{'at seed':>8}  {'s':>5}  what broke")
    with get_context("fork").Pool(options.workers, maxtasksperchild=1) as pool:
        results = [pool.apply_async(hunt, (name, options.seeds)) for name in names]
        for result in results:
            found = result.get()
            if not found.is_found:
                missed.append(found.name)
            by = "by its story" if found.by_story else "NOTHING"
            if found.seed is not None:
                by = checker(found.broke)
            at = "-" if found.seed is None else str(found.seed)
            print(
                f"{found.name:34}{by:24}{at:>8}  {found.seconds:5.1f}  {found.broke[:70]}",
                flush=True,
            )
    if missed:
        print(f"found neither within {options.seeds} seeds nor by a story: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
