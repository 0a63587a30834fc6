"""`make client-libraries`: installs those that are missing, says how their programs are run."""

import sys

from kept_builds import BuildError
from quorate_clients import node_toolchain
from quorate_clients.installed import command
from quorate_clients.libraries import LIBRARIES
from quorate_control_plane import go_toolchain


def main() -> int:
    """Answer 0 when all libraries are there, 1 otherwise."""
    failed = False
    for library in LIBRARIES:
        try:
            if library.language == "node":
                node_toolchain.fetch_node()
            if library.language == "go":
                go_toolchain.fetch_go()
            print(library.name, *command(library)[0])
        except BuildError as error:
            print(f"make client-libraries: {library.name}: {error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
