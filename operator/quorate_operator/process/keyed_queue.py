"""Keys of objects that are to be looked at: each once, with a back-off of its own after a failure.

A key says "look at this object", never what happened to it: the worker looks at the whole state.  A
key that is added while a worker has it is handed out again afterwards, never to two workers at a
time.  Keys that were never taken go first: what is only just declared does not wait behind the news
of hundreds of other objects.

    add --> waiting --take--> in hand --done--> gone, or waiting again if it was added meanwhile
                                      --failed--> later, after 0.2 s, 0.4 s … 30 s
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

RETRY_S = 0.2
RETRY_MAX_S = 30.0

K = TypeVar("K", bound=Hashable)


class KeyedQueue(Generic[K]):
    """Belongs to the event loop's thread.  `jitter` answers a factor for each back-off, by which
    objects that failed together come back apart."""

    def __init__(self, jitter: Callable[[], float] = lambda: 1.0) -> None:
        self._jitter = jitter
        self._waiting: deque[K] = deque()
        self._fresh: deque[K] = deque()  # never taken yet
        self._known: set[K] = set()  # taken before
        self._queued: set[K] = set()
        self._in_hand: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait to be taken; those that come later are not counted."""
        return len(self._waiting) + len(self._fresh)

    @property
    def is_idle(self) -> bool:
        """Whether no key waits, comes later, or is in a worker's hand."""
        return not (len(self) or self._in_hand or self._later)

    def add(self, key: K) -> None:
        """Look at `key` as soon as a worker is free."""
        later = self._later.pop(key, None)
        if later is not None:
            later.cancel()
        if key in self._in_hand:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            (self._waiting if key in self._known else self._fresh).append(key)
            self._news.set()

    def add_in_turn(self, key: K) -> None:
        """As `add`, but a key that has failed comes back when its back-off is over."""
        if not self.is_backing_off(key):
            self.add(key)

    def add_later(self, key: K, delay_s: float) -> None:
        """Look at `key` after `delay_s`, or earlier if it is added, or already awaited earlier."""
        loop = asyncio.get_running_loop()
        known = self._later.get(key)
        if known is not None:
            if known.when() <= loop.time() + delay_s:
                return
            known.cancel()
        self._later[key] = loop.call_later(delay_s, self.add, key)

    async def take(self) -> K:
        """The key that has waited longest, of those never taken before if there are any; `done` or
        `failed` must follow."""
        while not len(self):
            self._news.clear()
            await self._news.wait()
        key = (self._fresh or self._waiting).popleft()
        self._known.add(key)
        self._queued.discard(key)
        self._in_hand.add(key)
        return key

    def done(self, key: K) -> None:
        """Mark the key's work as done."""
        self._failures.pop(key, None)
        self._put_down(key)

    def failed(self, key: K) -> float:
        """It could not be done: later again, each time after a longer while, which is answered."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(RETRY_S * 2.0 ** min(count - 1, 20), RETRY_MAX_S) * self._jitter()
        self._put_down(key)
        if key not in self._queued:
            self.add_later(key, delay_s)
        return delay_s

    def is_backing_off(self, key: K) -> bool:
        """Whether it could not be done, and comes again later."""
        return key in self._failures and key in self._later

    def forget(self, key: K) -> None:
        """The object is gone: nothing is awaited for it any more."""
        self._failures.pop(key, None)
        self._known.discard(key)
        self._again.discard(key)
        later = self._later.pop(key, None)
        if later is not None:
            later.cancel()

    def close(self) -> None:
        """No key comes later any more."""
        for later in self._later.values():
            later.cancel()
        self._later.clear()

    def _put_down(self, key: K) -> None:
        self._in_hand.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
