"""The slow log of one zone on one agent: the last commands whose execution took long.

The duration is that of execution, in which the agent does nothing else for the zone's clients.  It
includes reading the copy and writing the update to it and to its log, but no waiting: not for a
turn, a primary, a lock, other copies, or the disk's sync.  Source: SLOWLOG of Redis 7.0.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from quorate_agent.resp.replies import array, bulk, bulks, integer

SLOWER_THAN_US = 10_000
"""By default, commands that take at least so long are logged."""

ENTRIES = 128
"""How many commands are kept by default."""

ENTRIES_MAX = 1000
"""How many may be kept: 6 MB, if all have long words, which SLOWLOG GET tells in one reply."""

CLOSE_S = 0.001
"""With a bound below this, commands are executed one by one, to be timed one by one."""

_WORDS_MAX = 32
_WORD_BYTES_MAX = 128


class SlowCommand(NamedTuple):
    """One entry; `at_s` is Unix time."""

    number: int
    at_s: int
    took_us: int
    words: tuple[bytes, ...]
    address: str
    name: bytes

    def reply(self) -> bytes:
        """Return the entry as SLOWLOG GET shows it."""
        numbers = map(integer, (self.number, self.at_s, self.took_us))
        client = (bulk(self.address.encode()), bulk(self.name))
        return array([*numbers, bulks(self.words), *client])


class SlowLog:
    """Commands that took at least `slower_than_us`, newest first; negative: none is logged.

    `over_s` is the same in seconds; `is_close`: whether commands are to be timed one by one."""

    def __init__(self) -> None:
        self.entries: deque[SlowCommand] = deque()
        self.entries_max = ENTRIES
        self._logged = 0
        self.log_slower_than(SLOWER_THAN_US)

    def log_slower_than(self, micros: int) -> None:
        """Log commands that take at least so long; negative: none."""
        self.slower_than_us = micros
        self.over_s = micros / 1_000_000 if micros >= 0 else math.inf
        self.is_close = self.over_s < CLOSE_S

    def note(
        self, args: Sequence[bytes], took_s: float, at_ms: int, address: str, name: bytes
    ) -> None:
        """Log a command that has just been executed if it took long.

        `at_ms`: wall time; `address`, `name`: of its client."""
        if took_s < self.over_s:
            return
        words = tuple(map(_short, args[:_WORDS_MAX]))
        if len(args) > _WORDS_MAX:
            more = b"... (%d more arguments)" % (len(args) - _WORDS_MAX + 1)
            words = (*words[:-1], more)
        took_us = int(took_s * 1_000_000)
        entry = SlowCommand(self._logged, at_ms // 1000, took_us, words, address, name)
        self._logged += 1
        self.entries.appendleft(entry)
        while len(self.entries) > self.entries_max:
            self.entries.pop()


def _short(word: bytes) -> bytes:
    if len(word) <= _WORD_BYTES_MAX:
        return word
    more = len(word) - _WORD_BYTES_MAX
    return b"%b... (%d more bytes)" % (word[:_WORD_BYTES_MAX], more)
