"""`python -m quorate_sim_endpoints SEED [--holds 0.5] [--trace]`: replay one seed."""

import argparse
import sys

from quorate_sim_endpoints.story import play


def main() -> int:
    """A traceback tells what does not fit together."""
    parser = argparse.ArgumentParser(prog="python -m quorate_sim_endpoints", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--holds", type=float, default=0.0, help="how probably a message is held")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    options = parser.parse_args()
    commands = play(options.seed, options.holds, options.trace)
    print(f"seed {options.seed}: {commands} commands, and what was told fits together")
    return 0


if __name__ == "__main__":
    sys.exit(main())
