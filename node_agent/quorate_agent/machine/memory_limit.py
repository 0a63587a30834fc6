"""The memory of this process, and its limit: the lowest of its cgroups', else the machine's memory.

The limit is read once at the start.  Source: the kernel's admin guide, "Control Group v2"
(`memory.max`) and "Memory Resource Controller" of version 1 (`memory.limit_in_bytes`).
"""

import os
from pathlib import Path
from typing import NamedTuple

_V1_UNLIMITED = 1 << 60
"""Without a limit, version 1 writes a number near 2**63."""


_OWN = Path("/proc/self/statm")


class MemoryLimit(NamedTuple):
    """Bytes, and the source of the number in words."""

    bytes: int
    source: str


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """Return the limit of this process; `root`: the folder that has `proc` and `sys`."""
    limits = [
        MemoryLimit(size, f"/{file.relative_to(root)}")
        for file in _limit_files(root)
        if (size := _limit_of(file)) is not None
    ]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([*limits, MemoryLimit(physical, "the machine's memory")])


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory now."""
    return int(_OWN.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _limit_files(root: Path) -> list[Path]:
    """Return the limit file of each cgroup of this process, up to the topmost one mounted here."""
    files: list[Path] = []
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        # A container may see its host's path, of which nothing is mounted here; then the top is its
        # own cgroup.
        group = top / path.strip("/")
        files += [each / name for each in (group, *group.parents) if each.is_relative_to(top)]
    return files


def _limit_of(file: Path) -> int | None:
    """Return the number in a limit file; None if there is none."""
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdecimal() and int(text) < _V1_UNLIMITED else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []
