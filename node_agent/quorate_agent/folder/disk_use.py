"""The bytes that the files of zones take on the disk.

A folder is measured at most once a minute, and at most so many folders at a time, because each
takes about 60 µs during which the agent does nothing else."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from quorate_agent.machine.clock import Clock, MachineClock

LOOK_S: Final = 60.0
FOLDERS_MAX: Final = 100
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`, whatever the file system's own block size is."""


class DiskUse:
    """The last measurement of each folder."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MachineClock()
        self._measured: dict[Path, tuple[float, int]] = {}

    def measure(self, folders: Mapping[str, Path]) -> dict[str, int]:
        """Return the bytes of each of `folders` by the same names.

        Those measured longest ago are measured again.  One for which there was no time yet is
        missing."""
        now = self._clock.passed_s()
        known = self._measured
        for gone in known.keys() - set(folders.values()):
            del known[gone]

        def due(folder: Path) -> float:
            return known[folder][0] + LOOK_S if folder in known else 0.0

        for folder in sorted(folders.values(), key=due)[:FOLDERS_MAX]:
            if due(folder) <= now:
                known[folder] = (now, bytes_in(folder))
        return {name: known[folder][1] for name, folder in folders.items() if folder in known}


def bytes_in(folder: Path | str) -> int:
    """Return the bytes that the files in a folder and its subfolders take on the disk.

    Files may be removed meanwhile: the engine does so at any time."""
    size = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                size += bytes_in(entry.path)
                continue
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    return size
