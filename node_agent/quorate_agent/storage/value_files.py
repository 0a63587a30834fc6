"""The files of a Persistent zone's long values: `values/NUMBER` in the zone's folder.

A file is written once and synced before the engine refers to it.  It is removed once the removal of
its last reference is durable.  So whatever a crash leaves of the engine, the files that it refers
to exist.
"""

import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from quorate_agent.folder.durable_file import sync_folder
from quorate_agent.folder.identity import START_ANEW
from quorate_agent.storage import StorageBroken

STEP_BYTES: Final = 8 * 1024 * 1024
"""Written between two syncs, so that another sync on the disk waits for little more."""

_WAY_OUT: Final = f"Way out: {START_ANEW}"


def checksum(data: bytes | memoryview) -> int:
    """Return a 64-bit checksum; it takes a second for 16 GB."""
    return xxh3_64_intdigest(data)


class ValueFiles:
    """The files in one folder, which is created with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Files to which nothing in the engine refers, at the latest once it is synced.
        self._unused: deque[int] = deque()
        self.last_number = 0  # the highest one that existed when the database was opened

    def check(self, sizes: Mapping[int, int]) -> str:
        """Compare the files with what the engine refers to (bytes by number); all others are
        unused.

        Returns what is wrong; empty if nothing is."""
        found: dict[int, int] = {}
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                number = int(entry.name) if entry.name.isdecimal() else 0
                self.last_number = max(self.last_number, number)
                if number in sizes:
                    found[number] = entry.stat().st_size
                elif number:
                    self._unused.append(number)
        for number, size in sizes.items():
            if found.get(number) != size:
                there = f"{found[number]} bytes" if number in found else "missing"
                return f"{self._path(number)}: {there}, it had {size} bytes"
        return ""

    def write(self, values: Mapping[int, bytes]) -> None:
        """Write these files durably.  From any thread.  OSError: none of them exists."""
        try:
            if not self._folder.exists():
                self._folder.mkdir()
                sync_folder(self._folder.parent)
            for number, data in values.items():
                _write(self._path(number), data)
            sync_folder(self._folder)
        except OSError:
            for number in values:
                with suppress(OSError):
                    self._path(number).unlink(missing_ok=True)
            raise

    def read(self, number: int, offset: int, length: int, summed: int) -> bytes:
        """Return a part of a file.  StorageBroken: it is not what was written."""
        path = self._path(number)
        try:
            with path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), length, offset)
                while len(data) < length and (
                    more := os.pread(file.fileno(), length - len(data), offset + len(data))
                ):
                    data += more
        except OSError as error:
            raise StorageBroken(f"{path}: cannot be read: {error}. {_WAY_OUT}") from error
        if len(data) != length or checksum(data) != summed:
            raise StorageBroken(
                f"{path}: {len(data)} of {length} bytes from {offset} on are there, or are not"
                f" those that were written. {_WAY_OUT}"
            )
        return data

    # --- removing

    def unused(self, number: int) -> None:
        """Mark a file for removal: the engine no longer refers to it."""
        self._unused.append(number)

    def take_unused(self) -> list[int]:
        """Return the files to `remove` after the sync that begins now.  From any thread."""
        taken: list[int] = []
        with suppress(IndexError):  # another thread may take the last one
            while True:
                taken.append(self._unused.popleft())
        return taken

    def remove(self, numbers: list[int]) -> None:
        """Remove files to which nothing durable refers.  From any thread.

        Those that cannot be removed are removed when the database is opened."""
        for number in numbers:
            with suppress(OSError):
                self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / str(number)


def _write(path: Path, data: bytes) -> None:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        view, at = memoryview(data), 0
        while at < len(view):
            end = min(at + STEP_BYTES, len(view))
            while at < end:
                at += os.write(descriptor, view[at:end])
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
