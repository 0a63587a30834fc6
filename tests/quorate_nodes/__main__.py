"""`make nodes`: builds the programs that nodes need beside those of Debian, and says where."""

import sys

from kept_builds import BuildError
from quorate_nodes.programs import WAY_OUT, build_programs, can_have_nodes, find_programs


def main() -> int:
    """Exit code 1 when a step of the build failed."""
    try:
        build_programs(lambda step: print(step, flush=True))
    except BuildError as error:
        print(f"make nodes: {error}", file=sys.stderr)
        return 1
    for name, path in (find_programs() or {}).items():
        print(f"{name:24} {path}")
    if not can_have_nodes():
        print(f"make nodes: this machine lacks something else that nodes need: {WAY_OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
