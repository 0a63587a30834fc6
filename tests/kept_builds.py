"""What tests fetch or build once: it is kept in a cache outside the project."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


class BuildError(Exception):
    """A command of a build failed; the text says which, and what it said last."""


def cache_folder() -> Path:
    """Where everything that is kept has a folder of its own."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quorate"


def version_of(sources: Iterable[Path]) -> str:
    """Part of a path in the cache: other sources or another kind of machine, another path."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
    return f"{digest.hexdigest()[:16]}-{platform.machine()}"


def keep(target: Path, make: Callable[[Path], object]) -> Path:
    """The file or folder `target`; where it is not there, `make` writes it to the path it is given.

    It comes into the cache in one piece; a second call at the same time waits for the first."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back with the file
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="partial-") as work:
                partial = Path(work) / target.name
                make(partial)
                partial.rename(target)
    return target


def fetch_package(pins: Path, target: Path) -> None:
    """Put the Python package that the file `pins` names into the folder `target`, anew."""

    def install(partial: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--requirement", str(pins), "--target", str(partial)]
        run_checked(command, partial.parent)

    shutil.rmtree(target, ignore_errors=True)
    keep(target, install)


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


def build_go(go: str, sources: Path, target: Path) -> None:
    """Build the Go program in `sources`: as its go.mod and go.sum say, not a person's settings."""
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(target), "."]
    run_checked(command, sources, {**os.environ, **settings})
