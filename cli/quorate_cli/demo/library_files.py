"""Real data for the demo: the running Python's standard library, stored through a client."""

import asyncio
import hashlib
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from redis.asyncio.cluster import RedisCluster

from quorate_cli.demo.acknowledged_writes import REFUSALS, ask, redis_cluster
from quorate_cli.terminal.problem import Problem

VALUE_BYTES_MAX = 64 * 1024 * 1024
AT_ONCE = 16
"""Concurrent commands: enough to keep every agent busy."""
ATTEMPTS = 5
BYTES_AT_ONCE = 16 * 1024 * 1024
"""Bytes of values under way at a time: some files are large."""


class LibraryFile(NamedTuple):
    """One file; its key is its path in the library, with slashes."""

    key: str
    path: Path
    bytes: int


def library_files(bytes_max: int) -> list[LibraryFile]:
    """Return files of the standard library without site-packages, sorted by key.

    Together they have at most `bytes_max` bytes; a file that no longer fits is left out.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found, total = [], 0
    for path in _walk(root):
        size = path.stat().st_size
        if size <= VALUE_BYTES_MAX and total + size <= bytes_max:
            found.append(LibraryFile(path.relative_to(root).as_posix(), path, size))
            total += size
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name != "site-packages":
                yield from _walk(path)
        elif path.is_file():
            yield path


class Library:
    """Stores files and proves that they are there.

    `digests[key]` is of the stored data, since files may change on the disk meanwhile (a .pyc may
    be compiled anew).  `repeated`: how many commands were sent again.
    """

    def __init__(self, files: Sequence[LibraryFile]) -> None:
        self.files = files
        self.digests: dict[str, bytes] = {}
        self.repeated = 0

    @property
    def byte_count(self) -> int:
        """The bytes of all files together."""
        return sum(file.bytes for file in self.files)

    def store(self, endpoints: Sequence[str], progress: Callable[[int], None]) -> None:
        """SET every file; call `progress` with the bytes acknowledged."""

        async def store_one(client: RedisCluster, file: LibraryFile) -> None:
            data = file.path.read_bytes()
            self.digests[file.key] = hashlib.sha256(data).digest()
            await self._ask(client, "SET", file.key, data)
            progress(file.bytes)

        asyncio.run(self._each(endpoints, store_one))

    def check(self, endpoints: Sequence[str], progress: Callable[[int], None]) -> None:
        """GET every file and compare its SHA-256; raise Problem with the first that differs."""
        wrong: list[str] = []

        async def check_one(client: RedisCluster, file: LibraryFile) -> None:
            found = await self._ask(client, "GET", file.key)
            if not isinstance(found, bytes):
                wrong.append(f"{file.key} is missing")
            elif hashlib.sha256(found).digest() != self.digests[file.key]:
                wrong.append(f"{file.key} has another content ({len(found)} bytes)")
            progress(file.bytes)

        asyncio.run(self._each(endpoints, check_one))
        if wrong:
            raise Problem(f"{len(wrong)} of {len(self.files)} files are wrong: {sorted(wrong)[0]}")

    async def _ask(self, client: RedisCluster, *command: str | bytes) -> object:
        """Execute one command, again if its outcome is unknown: repeating it does no harm here."""
        for attempt in range(ATTEMPTS):
            try:
                return await ask(client, *command)
            except REFUSALS as error:
                self.repeated += 1
                if attempt == ATTEMPTS - 1:
                    raise Problem(f"{command[0]!s} {command[1]!s}: {error}") from error
        raise AssertionError

    async def _each(
        self,
        endpoints: Sequence[str],
        work: Callable[[RedisCluster, LibraryFile], Awaitable[None]],
    ) -> None:
        client = redis_cluster(endpoints)
        waiting = iter(self.files)
        room = _Room(BYTES_AT_ONCE)

        async def work_on() -> None:
            for file in waiting:
                async with room.taken(file.bytes):
                    await work(client, file)

        try:
            await client.initialize()
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(work_on())
        finally:
            await client.aclose()


class _Room:
    """Limits the bytes under way at a time; a larger item goes alone."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room for `size`, and hold it inside the block."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: not self._taken or self._taken + size <= self._bytes_max
            )
            self._taken += size
        try:
            yield
        finally:
            async with self._changed:
                self._taken -= size
                self._changed.notify_all()
