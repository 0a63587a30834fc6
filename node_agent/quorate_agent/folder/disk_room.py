"""The free space on the disk of the data folder, and its reserve.

Two bounds keep clients' writes from filling the disk:

    free < reserve        commands that need room are refused; deletes, expiry and replication go on
    free < 32 MiB         copies take no more updates either: the rest is for promises, rows, and
                          what the engine needs to make room again

If the reserve is smaller than 64 MiB, the second bound is half of it.  A bound is over only once
free space exceeds it by a quarter, because the engine takes and frees space all the time.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from quorate.facts.errors import NO_ROOM
from quorate_agent.machine.clock import Clock, MachineClock

LOOK_S: Final = 1.0
MIB: Final = 1 << 20
SHORT: Final = 32 * MIB
RESERVE_MIN: Final = 32 * MIB
RESERVE_USUAL: Final = 256 * MIB
RESERVE_MAX: Final = 4096 * MIB
FILES_MIN: Final = 16
"""A file system that can make fewer files has no room for a database to be opened."""


def reserve_of(disk_bytes: int) -> int:
    """Return the default reserve: 5 % of the disk, between 256 MiB and 4 GiB.

    On a small disk a sixth of it, at least 32 MiB."""
    usual = min(max(RESERVE_USUAL, disk_bytes // 20), RESERVE_MAX)
    return max(RESERVE_MIN, min(usual, disk_bytes // 6))


class DiskRoom:
    """The disk of `folder`, looked at most once a second for all zones together.

    `reserve_bytes` None: derived from the size of the disk, even after it has grown."""

    def __init__(
        self, folder: Path, reserve_bytes: int | None = None, clock: Clock | None = None
    ) -> None:
        self._folder = folder
        self.clock = clock or MachineClock()
        self._told = reserve_bytes
        self._looked_s = float("-inf")
        self._is_low = False
        self._is_short = False
        self.size = 0
        self.free = 0
        self.reserve = 0

    @property
    def is_low(self) -> bool:
        """Whether commands that need room are refused."""
        self.look()
        return self._is_low

    @property
    def is_short(self) -> bool:
        """Whether copies take no more updates."""
        self.look()
        return self._is_short

    @property
    def words(self) -> str:
        """The last observation, as the end of a sentence."""
        return (
            f"{self.free // MIB} MiB left on the disk, {self.reserve // MIB} MiB are kept free"
            " (--disk-reserve)"
        )

    def look_again(self) -> int:
        """Look now; return the free bytes."""
        self._looked_s = float("-inf")
        self.look()
        return self.free

    def look(self) -> None:
        """Look, unless that was done within the last second."""
        now = self.clock.passed_s()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        disk = os.statvfs(self._folder)
        self.size, self.free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        self.reserve = reserve_of(self.size) if self._told is None else self._told
        self._is_low = _is_below(self.free, self.reserve, self._is_low)
        self._is_short = _is_below(self.free, min(SHORT, self.reserve // 2), self._is_short)


def _is_below(free: int, bound: int, was_below: bool) -> bool:
    return free < (bound + bound // 4 if was_below else bound)


def takes_file(folder: Path, size: int) -> bool:
    """Return whether a file of `size` bytes finds room in `folder` now; it is not kept.

    Quotas and a bound on the number of files do not show in the free bytes."""
    disk = os.statvfs(folder)
    if disk.f_files and disk.f_favail < FILES_MIN:
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            os.fsync(file.fileno())
    except OSError as error:  # any other error says nothing of the room
        return error.errno not in NO_ROOM
    return True
