"""The rate at which paced readings of this agent's copies may go on: one token bucket for all.

An answer is paid for after it was read, when its size is known: the next one waits until the rate
has paid for it.  So nothing that was read waits in memory, and over any time T no more than
rate * T and one answer is read.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from quorate.protocol.storage import Row

ANSWERS_PER_S = 10
"""An answer has at most the bytes of a tenth of a second, so that paced readings take turns often
and each of them stops the event loop only shortly."""
ANSWER_BYTES_MIN = 64 * 1024
"""Below this, answers would cost more than the rows in them."""


@dataclass(slots=True)
class Portion:
    """The part of a copy that one answer may read.

    `bytes_max`: one row may be longer.  `read`: bytes of rows that were read and may not be in the
    answer.
    """

    bytes_max: int
    is_counted: bool = True
    read: int = 0

    def note(self, rows: Iterable[tuple[bytes, Row]]) -> None:
        """Note rows that were read."""
        if self.is_counted:
            self.read += sum(len(key) + len(row.value or b"") for key, row in rows)


class ReadPace:
    """The rates that readers ask for, and how long the next answer has to wait.

    The lowest rate counts: each reader may rely on its own limit for the agent as a whole.  What
    was read is still to be paid for when its reader is gone.  `clock`: seconds that pass.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[Hashable, int] = {}
        self._bytes_per_s = 1
        self._owed_bytes = 0.0
        self._paid_s = 0.0
        """Up to this time the rate has paid."""

    def __contains__(self, reader: Hashable) -> bool:
        return reader in self._asked

    @property
    def bytes_per_s(self) -> int:
        """The rate of all readers together."""
        return self._bytes_per_s

    @property
    def portion(self) -> Portion:
        """What the next answer may read."""
        return Portion(max(ANSWER_BYTES_MIN, self._bytes_per_s // ANSWERS_PER_S))

    def ask(self, reader: Hashable, bytes_per_s: int) -> None:
        """Have a reader paced, by its limit or a lower one."""
        self._pay()
        self._asked[reader] = bytes_per_s
        self._bytes_per_s = min(self._asked.values())

    def end(self, reader: Hashable) -> None:
        """Forget a reader that is gone; idempotent."""
        self._pay()
        self._asked.pop(reader, None)
        self._bytes_per_s = min(self._asked.values(), default=self._bytes_per_s)

    def charge(self, size: int) -> None:
        """Have an answer of so many bytes paid for before the next one."""
        self._pay()
        self._owed_bytes += size

    def wait_s(self) -> float:
        """Return the seconds until the next answer may be read; 0: now."""
        self._pay()
        return self._owed_bytes / self._bytes_per_s

    def _pay(self) -> None:
        now_s = self._clock()
        paid = (now_s - self._paid_s) * self._bytes_per_s
        self._owed_bytes = max(self._owed_bytes - max(paid, 0.0), 0.0)
        self._paid_s = now_s
