"""The bytes that the files of zones take on the disk.

A folder is measured at most once a minute, in a thread: the agent goes on meanwhile, however many
files of long values there are, and however slow the disk is."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from quorate_agent.machine.clock import Clock, MachineClock

LOOK_S: Final = 60.0
FOLDERS_MAX: Final = 100
"""Folders measured at a time: the thread and the agent share the interpreter."""
WAIT_S: Final = 0.005
"""Longest wait for a measurement; one that takes longer is told when it is asked for again."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`, whatever the file system's own block size is."""


class DiskUse:
    """The last measurement of each folder."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MachineClock()
        self._measured: dict[Path, tuple[float, int | None]] = {}
        self._look: _Look | None = None

    def measure(self, folders: Mapping[str, Path]) -> dict[str, int]:
        """Return the bytes of each of `folders` by the same names.

        Those measured longest ago are measured again.  One for which there was no time yet is
        missing, and so is one that could not be read."""
        now = self._clock.passed_s()
        known = self._measured
        for gone in known.keys() - set(folders.values()):
            del known[gone]

        def due(folder: Path) -> float:
            return known[folder][0] + LOOK_S if folder in known else 0.0

        oldest = sorted(folders.values(), key=due)[:FOLDERS_MAX]
        late = [folder for folder in oldest if due(folder) <= now]
        if late and self._look is None:
            self._look = _Look(late)
        if self._look is not None and self._look.is_over(WAIT_S):
            known |= {folder: (now, size) for folder, size in self._look.sizes.items()}
            self._look = None
        sizes = {name: known[folder][1] for name, folder in folders.items() if folder in known}
        return {name: size for name, size in sizes.items() if size is not None}


class _Look:
    """Measures folders in a thread, which is not waited for when the process ends."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.sizes: dict[Path, int | None] = {}
        """None: it could not be read.  Complete once the look is over."""
        self._thread = Thread(target=self._run, args=(folders,), name="disk use", daemon=True)
        self._thread.start()

    def is_over(self, wait_s: float) -> bool:
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            self.sizes[folder] = None
            with suppress(OSError):
                self.sizes[folder] = bytes_in(folder)


def bytes_in(folder: Path | str) -> int:
    """Return the bytes that the files in a folder and its subfolders take on the disk.

    Files may be removed meanwhile: the engine does so at any time.  Raises OSError if one is there
    and cannot be read."""
    size = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                size += bytes_in(entry.path)
                continue
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    return size
