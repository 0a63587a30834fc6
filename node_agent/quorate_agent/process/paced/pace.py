"""The rate at which paced readings of this agent's copies may go on: one token bucket for all.

An answer is paid for after it was read, when its size is known: the next one waits until the rate
has paid for it.  So nothing that was read waits in memory, and over any time T no more than
rate * T and one answer is read.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from quorate.protocol.storage import Row

ACTIVE_S = 10.0
"""A reader that has asked nothing for so long does not hold back others: its own limit counts again
when it asks."""
ANSWERS_PER_S = 10
"""An answer has at most the bytes of a tenth of a second, so that paced readings take turns often
and each of them stops the event loop only shortly."""


@dataclass(slots=True)
class Portion:
    """The part of a copy that one answer may read.

    `bytes_max`: one row may be longer.  `read`: bytes that were read and may not be in the answer.
    """

    bytes_max: int
    is_counted: bool = True
    read: int = 0

    def note(self, rows: Iterable[tuple[bytes, Row]]) -> None:
        """Note rows that were read."""
        if self.is_counted:
            self.read += sum(len(key) + len(row.value or b"") for key, row in rows)

    def note_updates(self, updates: Iterable[tuple[int, int, bytes]]) -> None:
        """Note updates that were read: (counter, term, encoded)."""
        if self.is_counted:
            self.read += sum(len(raw) for _, _, raw in updates)


class ReadPace:
    """The rates that readers ask for, and how long the next answer has to wait.

    The lowest rate of those that read now counts: while it reads, each may rely on its own limit
    for the agent as a whole.  What was read is still to be paid for when its reader is gone.
    `clock`: seconds that pass.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rate_by_reader: dict[Hashable, int] = {}
        self._read_at_s: dict[Hashable, float] = {}
        """Time at which a reader last asked, or waited for its answer."""
        self._bytes_per_s = 1
        self._owed_bytes = 0.0
        self._paid_until_s = 0.0

    def __contains__(self, reader: Hashable) -> bool:
        return reader in self._rate_by_reader

    @property
    def bytes_per_s(self) -> int:
        """The rate of all readers together, as of now."""
        return self._bytes_per_s

    @property
    def portion(self) -> Portion:
        """The part of a copy that the next answer may read."""
        return Portion(max(1, self._bytes_per_s // ANSWERS_PER_S))

    def ask(self, reader: Hashable, bytes_per_s: int) -> None:
        """Have a reader paced, by its limit or a lower one."""
        self._rate_by_reader[reader] = bytes_per_s
        self.note_reading([reader])

    def note_reading(self, readers: Iterable[Hashable]) -> None:
        """Note that readers ask, or wait for their answers."""
        self._read_at_s.update(dict.fromkeys(readers, self._clock()))
        self._pay()

    def end(self, reader: Hashable) -> None:
        """Forget a reader that is gone; idempotent."""
        self._rate_by_reader.pop(reader, None)
        self._read_at_s.pop(reader, None)
        self._pay()

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
        paid = (now_s - self._paid_until_s) * self._bytes_per_s
        self._owed_bytes = max(self._owed_bytes - max(paid, 0.0), 0.0)
        self._paid_until_s = now_s
        active = [
            rate
            for reader, rate in self._rate_by_reader.items()
            if now_s - self._read_at_s[reader] < ACTIVE_S
        ]
        self._bytes_per_s = min(active, default=self._bytes_per_s)
