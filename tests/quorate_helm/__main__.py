"""`make helm`: says where helm 3 and helm 4 are; builds them first where they are not."""

import sys

from kept_builds import BuildError
from quorate_helm.build import VERSIONS, build_helm


def main() -> int:
    """Exit code 1 when a step of the build failed."""
    for name in VERSIONS:
        try:
            program = build_helm(name, lambda what: print(f"building {what}", flush=True))
        except BuildError as error:
            print(f"make helm: {error}", file=sys.stderr)
            return 1
        print(f"{name:24} {program}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
