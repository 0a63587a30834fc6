"""Removes deleted zones: ends their clients, closes their storages, frees their files and memory.

Closing a database and deleting thousands of files take as long as the disk does, and freeing
millions of rows takes seconds, so a thread does all of it.  The order to remove a zone is recorded
before that: the next start finishes what was interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.folder.folder_writes import FolderWrites
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.zones.runtime import Engine, ZoneRuntime


class ZoneRemovals:
    """The removals that are in progress on one agent.

    - `closed(uid)`: called on the event loop once nothing of the zone is open any more
    - `gone(uid)`: called after it if the zone's files are deleted by a removal that was begun
    - `ended`: gets the task of each, for its exception
    """

    def __init__(
        self,
        folder: DataFolder,
        writes: FolderWrites,
        threads: Executor,
        closed: Callable[[str], None],
        gone: Callable[[str], None],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._folder = folder
        self._writes = writes
        self._threads = threads
        self._closed = closed
        self._gone = gone
        self._ended = ended
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, uid: str) -> bool:
        """Return whether the zone is being removed: it cannot be opened meanwhile."""
        return uid in self._tasks

    def begin(self, uid: str, runtime: ZoneRuntime | None, engine: Engine | None) -> bool:
        """Begin to remove a zone, unless that is in progress; return whether all of it is gone.

        `engine`: its storage, if it is open."""
        if uid in self._tasks:
            return False
        if engine is None and not self._folder.has_zone(uid):
            self._closed(uid)
            return True
        is_recorded = self._writes.forget_zone(uid)
        work = self._remove(uid, runtime, engine, is_recorded)
        task = self._tasks[uid] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return False

    async def _remove(
        self, uid: str, runtime: ZoneRuntime | None, engine: Engine | None, is_recorded: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            if runtime is not None:
                await runtime.close()
            elif engine is not None:
                await loop.run_in_executor(self._threads, engine.close)
            if isinstance(engine, MemoryStorage):
                await loop.run_in_executor(self._threads, engine.free)
            is_gone = is_recorded and await loop.run_in_executor(
                self._threads, self._writes.remove_zone, uid
            )
        finally:
            del self._tasks[uid]
        self._closed(uid)
        if is_gone:
            self._gone(uid)

    async def finish(self) -> None:
        """Wait for all removals, whose threads need the folder."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())
