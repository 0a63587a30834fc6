"""`python -m quorate_sim SEED [COUNT] [--trace]`: replay one seed, or run several in turn."""

import argparse
import sys
import time
import traceback

from quorate_sim.faults import run_seed


def main() -> int:
    """Answer 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m quorate_sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--trace", action="store_true", help="print what happened")
    parser.add_argument("--keep-going", action="store_true", help="also after a failed seed")
    options = parser.parse_args()
    failed = 0
    started = time.process_time()
    for seed in range(options.seed, options.seed + options.count):
        try:
            cluster = run_seed(seed, options.trace)
        except Exception as error:
            failed += 1
            broken = error.__dict__.get("cluster")
            if options.trace and broken is not None:
                print("\n".join(broken.world.lines))
            if options.count == 1:
                traceback.print_exc()
            else:
                print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            if not options.keep_going:
                return 1
            continue
        if options.trace:
            print("\n".join(cluster.world.lines))
        if options.count == 1:
            print(
                f"seed {seed}: {len(cluster.clients.history)} commands, "
                f"{cluster.world.steps} steps, {cluster.world.time_ms} simulated ms"
            )
    seconds = time.process_time() - started
    rate = options.count / seconds
    print(f"{options.count} seeds, {failed} failed, {rate:.1f} seeds per CPU second")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
