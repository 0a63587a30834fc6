"""Adapts the number of concurrent requests to how fast the API server answers.

Additive increase, multiplicative decrease, as in TCP: each answer within `FAST_S` raises the limit
by 1/limit; an answer that takes longer than `SLOW_S` or does not come halves it.  All connections
of the process share one limit; waiting requests leave by rank, lowest first.  The election has its
own connections and is not counted; while a renewal of the lease is overdue, no other request
leaves.

Kubernetes client libraries instead bound requests per second, whatever the server's state is.
"""

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable

FIRST = 4
MOST = 64
FAST_S = 0.25
SLOW_S = 0.75
LEASE_LATE_S = 0.1
"""Seconds between checks whether an overdue lease was renewed, while requests wait for it."""


class Pace:
    """Limits the concurrent requests of one event loop.

    `is_lease_late`: whether the renewal of the lease is overdue.
    """

    def __init__(
        self,
        is_lease_late: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_lease_late = is_lease_late
        self._clock = clock
        self._limit = float(FIRST)
        self._cut_s = clock()
        self._under_way = 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._later: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """The largest number of concurrent requests now."""
        return int(self._limit)

    @contextlib.asynccontextmanager
    async def request(self, rank: int) -> AsyncIterator[None]:
        """Wait until a request may leave, and learn from the time that the block takes.

        An exception of the block counts as no answer.
        """
        await self._wait(rank)
        began_s = self._clock()
        is_answered = False
        try:
            yield
            is_answered = True
        except asyncio.CancelledError:  # says nothing about the server
            is_answered = True
            raise
        finally:
            self._under_way -= 1
            self._learn(began_s, is_answered)
            self._let_go()

    async def _wait(self, rank: int) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._order), mine))
        self._let_go()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._under_way -= 1
                self._let_go()
            raise

    def _let_go(self) -> None:
        while self._waiting and self._under_way < self.limit:
            if self._waiting[0][2].done():  # cancelled
                heapq.heappop(self._waiting)
            elif self._is_lease_late():
                self._look_later()
                return
            else:
                heapq.heappop(self._waiting)[2].set_result(None)
                self._under_way += 1

    def _look_later(self) -> None:
        self._limit = 1.0
        if self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(LEASE_LATE_S, self._looked_later)

    def _looked_later(self) -> None:
        self._later = None
        self._let_go()

    def _learn(self, began_s: float, is_answered: bool) -> None:
        now_s = self._clock()
        took_s = now_s - began_s
        if not is_answered or took_s > SLOW_S:
            if began_s >= self._cut_s:  # it left after the last time the limit was halved
                self._cut(now_s)
        elif took_s <= FAST_S and self._under_way + 1 >= self.limit:
            self._limit = min(self._limit + 1 / self._limit, MOST)

    def _cut(self, now_s: float) -> None:
        self._limit = max(self._limit / 2, 1.0)
        self._cut_s = now_s
