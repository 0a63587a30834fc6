"""`make control-plane`: says where the binaries are; builds them first where there are none.

An argument, as in `make control-plane VERSION=v1.34.4`, names another version than every test's.
"""

import sys
from collections.abc import Sequence

from kept_builds import BuildError
from quorate_control_plane.binaries import KUBERNETES_VERSION, OTHER_VERSIONS, find_binaries
from quorate_control_plane.build import build_binaries


def main(words: Sequence[str]) -> int:
    """Exit code 1 when a step of the build failed, 2 for a version that no test asks for."""
    version = words[0] if words else KUBERNETES_VERSION
    known = (KUBERNETES_VERSION, *OTHER_VERSIONS)
    if version not in known:
        print(f"make control-plane: VERSION is one of {', '.join(known)}", file=sys.stderr)
        return 2
    binaries = find_binaries(version)
    if binaries is None:
        print(f"No folder has all programs of {version}: building them, 10 to 20 minutes.")
        try:
            build_binaries(lambda step: print(step, flush=True), version)
        except BuildError as error:
            print(f"make control-plane: {error}", file=sys.stderr)
            return 1
        binaries = find_binaries(version)
        assert binaries is not None
    for name, path in binaries.items():
        print(f"{name:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
