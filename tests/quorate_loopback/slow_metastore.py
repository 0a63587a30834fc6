"""A metastore in memory whose answers come when a test says so."""

import asyncio

from quorate.protocol.metastore import Key, Revision, Stored, Value
from quorate_loopback.waiting import until
from quorate_operator.metastores.memory import MemoryMetastore


class SlowMetastore(MemoryMetastore):
    """Does everything at once, but answers late.

    `is_slow`: readings wait for `answer_all`; `slow_writes`: writes do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.slow_writes = False
        self.keys_read: list[Key] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def load(self) -> dict[Key, Stored]:
        stored = await super().load()
        await self._wait(self.is_slow)
        return stored

    async def read(self, key: Key) -> Stored | None:
        self.keys_read.append(key)
        stored = await super().read(key)
        await self._wait(self.is_slow)
        return stored

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        revision = await super().write(key, value, expected)
        await self._wait(self.slow_writes)
        return revision

    async def _wait(self, is_slow: bool) -> None:
        if is_slow:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    async def asked(self, answers: int) -> None:
        """Wait until so many answers wait."""
        await until(lambda: len(self._waiting) == answers, "a request under way")

    def answer_all(self) -> None:
        """Answer in the reverse order, and from now on at once."""
        self.is_slow = self.slow_writes = False
        waiting, self._waiting = self._waiting, []
        for each in reversed(waiting):
            each.set_result(None)
