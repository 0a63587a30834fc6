"""`make dashboard-types`: installs the types of dashboards, and the compiler, for tests."""

import sys

from kept_builds import BuildError
from quorate_clients.node_toolchain import fetch_node
from quorate_dashboard_types.installed import PINS, install

if __name__ == "__main__":
    try:
        fetch_node()
        for pins in PINS:
            print(install(pins))
    except BuildError as error:
        sys.exit(f"make dashboard-types: {error}")
