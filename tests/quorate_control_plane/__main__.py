"""`make control-plane`: says where the binaries are; builds them first where there are none."""

import sys

from kept_builds import BuildError
from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.build import build_binaries


def main() -> int:
    binaries = find_binaries()
    if binaries is None:
        print("No folder has all of the control plane's programs: building them, 10 to 20 minutes.")
        try:
            build_binaries(lambda step: print(step, flush=True))
        except BuildError as error:
            print(f"make control-plane: {error}", file=sys.stderr)
            return 1
        binaries = find_binaries()
        assert binaries is not None
    for name, path in binaries.items():
        print(f"{name:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
