"""One open zone in an agent process: its storage, copies and clients, and the turns not yet synced.

Turns become durable in order.  A Persistent zone's storage is synced in a worker thread while the
loop goes on and the next turns queue up behind it; everything else is durable as written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from quorate.facts.zone import SyncWrites
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.turn import Turn
from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.storage_room import RoomWatch

SYNC_INTERVAL_S = 1.0

Engine = MemoryStorage | RocksStorage


class ZoneRuntime:
    """The parts of one zone on an agent, besides the core's `Replicas`."""

    def __init__(
        self,
        replicas: Replicas,
        storage: Engine,
        endpoint: ZoneEndpoint,
        synced: Callable[[str, Turn], None],
        turn: Callable[[], None],
        broken: Callable[[str], None],
        threads: Executor,
    ) -> None:
        self.replicas = replicas
        self.storage = storage
        self._room = RoomWatch(replicas, storage)
        self.endpoint = endpoint
        self._synced = synced
        self._broken = broken
        self._queue: deque[Turn] = deque()
        self._syncing = False
        self._threads = threads
        self._jobs: set[asyncio.Future[None]] = set()
        self._interval: asyncio.Task[None] | None = None
        if isinstance(storage, RocksStorage):
            loop = asyncio.get_running_loop()
            storage.write_in(threads, partial(loop.call_soon_threadsafe, turn))
        self.closed = False
        if replicas.record.persistent:
            self._interval = asyncio.get_running_loop().create_task(self._sync_by_interval())

    def look(self, now_s: float) -> None:
        """Take in a changed `maxMemory`, and look for room; `now_s` is monotonic."""
        if isinstance(self.storage, MemoryStorage):
            self.storage.set_max_memory(self.replicas.record.max_memory_bytes)
        self._room.look(now_s)

    def take(self, turn: Turn) -> bool:
        """Report a written turn as durable once it is; return whether that was at once."""
        if not self._queue and not self._syncing and not self._must_sync(turn):
            self._synced(self.replicas.uid, turn)
            return True
        self._queue.append(turn)
        if not self._syncing:
            self._start_sync()
        return False

    def _must_sync(self, turn: Turn) -> bool:
        record = self.replicas.record
        if not record.persistent or not turn.wrote:
            return False
        if record.sync_writes is SyncWrites.ALWAYS:
            return True
        return bool(turn.after_sync or turn.adopted or turn.refilled)

    def _start_sync(self) -> None:
        self._syncing = True
        covered = len(self._queue)
        self._sync().add_done_callback(lambda done: self._sync_ended(done, covered))

    def _sync(self) -> asyncio.Future[None]:
        """Begin to sync in a thread."""
        job = asyncio.get_running_loop().run_in_executor(self._threads, self.storage.sync)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    def _sync_ended(self, done: asyncio.Future[None], covered: int) -> None:
        self._syncing = False
        if self.closed:
            return
        error = done.exception()
        if error is not None:
            self._queue.clear()  # whether they are on disk is unknown: they are never reported
            self._broken(f"zone {self.replicas.record.name}: {error}")
            return
        for _ in range(covered):
            self._synced(self.replicas.uid, self._queue.popleft())
        while self._queue and not self._must_sync(self._queue[0]):
            self._synced(self.replicas.uid, self._queue.popleft())
        if self._queue and not self._syncing:
            self._start_sync()

    async def _sync_by_interval(self) -> None:
        """Sync while the record says so, and successfully once more after that has changed."""
        was_due = True  # it may change before the first interval is over
        while True:
            await asyncio.sleep(SYNC_INTERVAL_S)
            is_due = self.replicas.record.sync_writes is SyncWrites.INTERVAL
            if not is_due and not was_due:
                continue  # each turn is synced
            try:
                await asyncio.shield(self._sync())  # `close` cancels this and waits for the thread
            except Exception as error:
                self._broken(f"zone {self.replicas.record.name}: {error}")
                return
            was_due = is_due

    @property
    def is_durable(self) -> bool:
        """Whether everything written so far was reported as durable."""
        is_written = not self.replicas.waits_for_values
        return is_written and not self._queue and not self._syncing

    async def close(self) -> None:
        """End clients, finish the running sync, release the files."""
        if self.closed:
            return
        self.closed = True
        if self._interval is not None:
            self._interval.cancel()
        await self.endpoint.close()
        while self._jobs:
            await asyncio.wait(self._jobs)
        await asyncio.get_running_loop().run_in_executor(self._threads, self.storage.close)
