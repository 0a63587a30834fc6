"""Commands of clients and steps of transactions that wait until a role has an acknowledgement.

Source: docs/protocol.md, section 4; section 7, "PRIMARY_SYNC".
"""

from collections import deque
from typing import ClassVar

from quorate.protocol.copies.copy import Copy

ALONE_MAX_MS = 5_000
"""With PRIMARY_SYNC, a quorum is at most twice this time behind what was answered.

While it does not follow, clients wait for it.  Else the log, which is kept for it, and what is lost
with the primary would have no bound.
"""


class Waiter:
    """A command whose reply waits until a counter is acknowledged.

    `keys` are the keys that it wrote (None: FLUSHALL); a waiter without keys is a read.  `cargo`
    belongs to the shell.
    """

    __slots__ = ("cargo", "counter", "keys", "since_ms")

    has_client: ClassVar[bool] = True
    """Whether a client waits, which is told if the outcome is unknown."""
    needs_quorum: ClassVar[bool] = False
    """Whether a quorum must hold what it waits for, also in PRIMARY_SYNC."""

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

    - `answers_alone`: with PRIMARY_SYNC, clients need not wait for other copies
    - `acked`: the counter up to which the quorum durably holds every update; `copy.answered`: that
      up to which waiters were answered, which is the same unless the role `answers_alone`
    - `waiters`: what waits to be answered, in counter order; `lasting`: what waits for a quorum
      although the role `answers_alone`
    - `pending`: key -> the counter of its last write that is not answered; `flushed`: that of the
      last FLUSHALL
    """

    __slots__ = ("acked", "answers_alone", "copy", "flushed", "lasting", "pending", "waiters")

    def __init__(self, copy: Copy, answers_alone: bool) -> None:
        self.copy = copy
        self.answers_alone = answers_alone
        self.acked = 0
        self.waiters: deque[Waiter] = deque()
        self.lasting: deque[Waiter] = deque()
        self.pending: dict[bytes, int] = {}
        self.flushed = 0

    def wait(self, waiter: Waiter) -> None:
        """Answer `waiter` when everything reserved so far is acknowledged."""
        counter = self.copy.lwm
        waiter.counter = counter
        if waiter.needs_quorum and self.answers_alone:
            self.lasting.append(waiter)
            if not waiter.keys:
                return
            waiter = Clientless(waiter.keys, counter)
        for key in waiter.keys:
            if key is not None:
                self.pending[key] = counter
            else:
                self.flushed = counter
        self.waiters.append(waiter)

    def is_pending(self, key: bytes) -> bool:
        """Return whether a reply about `key` must wait (with a Waiter): its row may be lost."""
        return key in self.pending or self.flushed > self.copy.answered

    def may_be_lost(self, key: bytes) -> bool:
        """Return whether the last write of `key` may be lost: a quorum is not known to hold it.

        That a client was answered proves it only if the role never answered alone in its term.
        """
        row = self.copy.get(key)
        is_ahead = self.flushed > self.acked or (row is not None and row.counter > self.acked)
        return is_ahead or self.is_pending(key)

    def answer_alone(self, alone: bool) -> None:
        """Take in another write mode: what needs a quorum goes on waiting for one."""
        self.answers_alone = alone
        if alone:
            moved = [waiter for waiter in self.waiters if waiter.needs_quorum]
            self.lasting = deque(sorted((*self.lasting, *moved), key=lambda each: each.counter))
            self.waiters = deque(
                Clientless(waiter.keys, waiter.counter) if waiter.needs_quorum else waiter
                for waiter in self.waiters
                if waiter.keys or not waiter.needs_quorum
            )

    def take_undone(self, prefix: int) -> list[Waiter]:
        """Remove and return the waiters above `prefix`, whose updates are gone.

        They include reads that saw such an update.  No client may be told that it happened.  Keys
        stay pending for earlier writes.
        """
        undone = [w for w in (*self.lasting, *self.waiters) if w.counter > prefix]
        if undone:
            self.lasting = deque(w for w in self.lasting if w.counter <= prefix)
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

    def answer(self, reached: int) -> list[Waiter]:
        """Return the waiters that may be answered up to `reached`, in counter order."""
        answered = self._take_lasting() if self.lasting else []
        if reached <= self.copy.answered:
            return answered
        self.copy.answered = reached
        waiters, pending = self.waiters, self.pending
        if waiters and waiters[-1].counter <= reached:  # all waiters may be answered
            pending.clear()
            answered += waiters
            waiters.clear()
        while waiters and waiters[0].counter <= reached:
            waiter = waiters.popleft()
            for key in waiter.keys:
                if key is not None and pending.get(key, 0) <= waiter.counter:
                    pending.pop(key, None)
            answered.append(waiter)
        return answered

    def _take_lasting(self) -> list[Waiter]:
        """Remove and return what has waited for a quorum, which holds it now."""
        taken: list[Waiter] = []
        while self.lasting and self.lasting[0].counter <= self.acked:
            taken.append(self.lasting.popleft())
        return taken
