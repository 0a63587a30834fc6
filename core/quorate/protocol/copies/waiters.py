"""What waits until a role has an acknowledgement: commands of clients, steps of transactions.

Source: docs/protocol.md, section 4.
"""

from collections import deque
from typing import ClassVar

from quorate.protocol.copies.copy import Copy


class Waiter:
    """A command whose reply waits until a counter is acknowledged.

    `keys` are the keys that it wrote (None: FLUSHALL); a waiter without keys is a read.  `cargo`
    belongs to the shell.
    """

    __slots__ = ("cargo", "counter", "keys", "since_ms")

    has_client: ClassVar[bool] = True
    """Whether a client waits, which is told if the outcome is unknown."""

    def __init__(self, keys: tuple[bytes | None, ...], cargo: object, since_ms: int) -> None:
        self.keys = keys
        self.cargo = cargo
        self.counter = 0
        self.since_ms = since_ms


class Clientless(Waiter):
    """Keeps the keys of a write pending although no client waits for it."""

    __slots__ = ()

    has_client: ClassVar[bool] = False

    def __init__(self, keys: tuple[bytes | None, ...], counter: int = 0) -> None:
        super().__init__(keys, None, 0)
        self.counter = counter


class Waiting:
    """The waiters of a role, and the keys whose last write is not answered.

    - `acked`: the counter up to which the quorum durably holds every update
    - `waiters`: what waits for acknowledgement, in counter order
    - `pending`: key -> the counter of its last write that is not acknowledged; `flushed`: that of
      the last FLUSHALL
    """

    __slots__ = ("acked", "copy", "flushed", "pending", "waiters")

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.acked = 0
        self.waiters: deque[Waiter] = deque()
        self.pending: dict[bytes, int] = {}
        self.flushed = 0

    def wait(self, waiter: Waiter) -> None:
        """Answer `waiter` when everything reserved so far is acknowledged."""
        counter = self.copy.lwm
        waiter.counter = counter
        for key in waiter.keys:
            if key is not None:
                self.pending[key] = counter
            else:
                self.flushed = counter
        self.waiters.append(waiter)

    def is_pending(self, key: bytes) -> bool:
        """Return whether a reply about `key` must wait (with a Waiter): its row may be lost."""
        return key in self.pending or self.flushed > self.acked

    def take_undone(self, prefix: int) -> list[Waiter]:
        """Remove and return the waiters above `prefix`, whose updates are gone.

        They include reads that saw such an update.  No client may be told that it happened.  Keys
        stay pending for earlier writes.
        """
        undone = [waiter for waiter in self.waiters if waiter.counter > prefix]
        if undone:
            self.waiters = deque(w for w in self.waiters if w.counter <= prefix)
            self.pending = {
                key: waiter.counter
                for waiter in self.waiters
                for key in waiter.keys
                if key is not None
            }
        return undone

    def take_clients(self) -> list[Waiter]:
        """Remove and return the waiters of clients, which have waited long enough.

        Their writes may still last or be lost, so the keys stay pending.
        """
        taken = [waiter for waiter in self.waiters if waiter.has_client]
        if taken:
            self.waiters = deque(
                Clientless(waiter.keys, waiter.counter) if waiter.has_client else waiter
                for waiter in self.waiters
                if waiter.keys or not waiter.has_client
            )
        return taken

    def answer(self) -> list[Waiter]:
        """Return the waiters that may be answered by now, in counter order."""
        waiters, pending, acked = self.waiters, self.pending, self.acked
        if not waiters:
            return []
        if waiters[-1].counter <= acked:  # all waiters may be answered
            pending.clear()
            answered = list(waiters)
            waiters.clear()
            return answered
        answered = []
        while waiters[0].counter <= acked:
            waiter = waiters.popleft()
            for key in waiter.keys:
                if key is not None and pending.get(key, 0) <= waiter.counter:
                    pending.pop(key, None)
            answered.append(waiter)
        return answered
