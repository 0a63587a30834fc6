"""The cgroups of one node: made before it starts, removed when nothing runs in them any more.

Run as `python cgroups.py NAME`, it removes those of this name.  Needs nothing but the standard
library.  Cgroups of version 1: one folder in each hierarchy.
"""

import contextlib
import sys
import time
from pathlib import Path

_HIERARCHIES = Path("/sys/fs/cgroup")
_END_S_MAX = 20.0


def make(name: str) -> Path:
    """Make them, and return the file to which a process of the node writes its number."""
    for hierarchy in _HIERARCHIES.iterdir():
        if not hierarchy.is_dir() or hierarchy.is_symlink() or hierarchy.name == "unified":
            continue
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":  # empty at first, and then nothing may run there
            for each in ("cpuset.cpus", "cpuset.mems"):
                (group / each).write_text((hierarchy / each).read_text())
    own = _HIERARCHIES / "pids" / name / "system"
    own.mkdir(exist_ok=True)
    return own / "cgroup.procs"


def remove(name: str) -> None:
    """Wait until the last process has left, and remove them; nothing where they are not."""
    deadline = time.monotonic() + _END_S_MAX
    while _processes(name) and time.monotonic() < deadline:
        time.sleep(0.05)
    for group in _HIERARCHIES.glob(f"*/{name}"):
        folders = [path for path in group.rglob("*") if path.is_dir()]
        for folder in [*sorted(folders, key=lambda path: -len(path.parts)), group]:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _processes(name: str) -> list[str]:
    found: list[str] = []
    for path in (_HIERARCHIES / "pids" / name).rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            found += path.read_text().split()
    return found


if __name__ == "__main__":
    remove(sys.argv[1])
