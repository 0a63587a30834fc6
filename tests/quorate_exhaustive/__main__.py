"""Explore all small clusters without bound, or up to so many states each: MILLIONS of them."""

import sys
import time

from quorate_exhaustive.explorations import EXPLORATIONS
from quorate_exhaustive.explorer import Broken


def main() -> int:
    """Print a line for each exploration; 1 when an invariant broke."""
    states_max = int(float(sys.argv[1]) * 1_000_000) if len(sys.argv) > 1 else 1 << 62
    failed = False
    for name, exploration in EXPLORATIONS.items():
        start = time.monotonic()
        try:
            found = exploration.run(states_max)
        except Broken as broken:
            print(f"{name}: {broken}")
            failed = True
            continue
        how = "all" if found.complete else "the first"
        print(
            f"{name}: {how} {found.states:,} states, depth {found.depth}, {found.local_states:,}"
            f" states of processes, {time.monotonic() - start:.0f} s",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
