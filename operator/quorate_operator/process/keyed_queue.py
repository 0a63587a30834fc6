"""A queue of keys of objects to look at: each once, with its own back-off after a failure.

A key says "look at this object", never what happened to it: the worker looks at the whole state.  A
key that is added while a worker has it is handed out again afterwards, never to two workers at a
time.  Keys that were never taken go first: a newly declared object does not wait behind the news of
hundreds of others.

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
    """A queue of the event loop's thread.

    `jitter`: returns a factor for each back-off, so that objects that failed together are spread
    out.
    """

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
        """Return how many keys wait to be taken, without those that come later."""
        return len(self._waiting) + len(self._fresh)

    @property
    def is_idle(self) -> bool:
        """Whether no key waits, comes later, or is in a worker's hand."""
        return not (len(self) or self._in_hand or self._later)

    def add(self, key: K) -> None:
        """Queue `key` for a worker; a key that was to come later comes now."""
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
        """Do the same as `add`, but leave a key that has failed to its back-off."""
        if not self.is_backing_off(key):
            self.add(key)

    def add_later(self, key: K, delay_s: float) -> None:
        """Look at `key` after `delay_s`, or earlier if it is added or already scheduled earlier."""
        loop = asyncio.get_running_loop()
        known = self._later.get(key)
        if known is not None:
            if known.when() <= loop.time() + delay_s:
                return
            known.cancel()
        self._later[key] = loop.call_later(delay_s, self.add, key)

    async def take(self) -> K:
        """Return the key that has waited longest, first of all one never taken before.

        `done` or `failed` must follow.
        """
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
        """Schedule a key whose work failed again; return the delay in seconds, longer each time."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(RETRY_S * 2.0 ** min(count - 1, 20), RETRY_MAX_S) * self._jitter()
        self._put_down(key)
        if key not in self._queued:
            self.add_later(key, delay_s)
        return delay_s

    def is_backing_off(self, key: K) -> bool:
        """Return whether the key's work failed and is to be tried again later."""
        return key in self._failures and key in self._later

    def forget(self, key: K) -> None:
        """Forget the key of an object that is gone."""
        self._failures.pop(key, None)
        self._known.discard(key)
        self._again.discard(key)
        later = self._later.pop(key, None)
        if later is not None:
            later.cancel()

    def close(self) -> None:
        """Cancel all keys that would come later."""
        for later in self._later.values():
            later.cancel()
        self._later.clear()

    def _put_down(self, key: K) -> None:
        self._in_hand.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
