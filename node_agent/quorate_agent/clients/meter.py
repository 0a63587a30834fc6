"""Counts the commands that a zone's clients sent to this agent, and times their replies.

A command's time is from its arrival, when it was read from the socket and cut, until its reply is
made.  Commands answered at once are timed together, when the last of their batch is done: their
replies leave in one write.  Others have a slot, and are timed when its reply is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum

from quorate_agent.clients.connection import Slot
from quorate_agent.resp.command import READ, UNKNOWN, WRITE

BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
"""Upper bounds of the times that are counted together; longer ones are behind them."""

ERROR = b"-"[0]
"""The first byte of an error reply."""

EVERY_READ = 8
"""Of reads that are sent alone, one in so many is timed, and counted as so many.

Such a read takes 20 µs, and timing it 0.2."""


class Result(StrEnum):
    """How a command was answered."""

    OK = "ok"
    ERROR = "error"
    REDIRECTED = "redirected"
    REFUSED = "refused"
    UNKNOWN = "unknown"


_RESULTS: Mapping[bytes, Result] = {
    b"-MOVED": Result.REDIRECTED,
    b"-ASK": Result.REDIRECTED,
    b"-CLUSTERDOWN": Result.REFUSED,
    b"-MISCONF": Result.REFUSED,
    b"-OOM": Result.REFUSED,
    b"-UNKNOWN": Result.UNKNOWN,
}


Times = defaultdict[str, list[float]]


class CommandMeter:
    """The counts of one zone's commands here.

    - `at_once`: commands answered since the last `end`, by family
    - `lone_reads`: single reads answered so far by `joined_reads.read_one`
    - `written`: arrival -> writes whose replies were made since the last `end_writes`
    - `times`: by family how many commands took at most each of BOUNDS_S, how many longer, and the
      seconds of all
    - `failed`: (family, result) -> commands not answered OK
    """

    __slots__ = ("_clock", "at_once", "failed", "lone_reads", "times", "written")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.at_once: defaultdict[str, int] = defaultdict(int)
        self.lone_reads = 0
        self.written: defaultdict[float, int] = defaultdict(int)
        self.times = Times(no_times)
        self.failed: defaultdict[tuple[str, Result], int] = defaultdict(int)

    def answered(self, family: str, reply: bytes) -> None:
        """Count a command that was answered at once."""
        self.at_once[family] += 1
        if reply[:1] == b"-":
            self.fail(family, reply)

    def lone_read(self, arrived: float) -> None:
        """Count EVERY_READ single reads, of which the one that has just been answered is timed."""
        self._add(READ, EVERY_READ, self._clock() - arrived)

    def end(self, arrived: float) -> None:
        """Time the commands that were answered at once: they are those of a batch."""
        now = self._clock()
        for family, count in self.at_once.items():
            self._add(family, count, now - arrived)
        self.at_once.clear()

    def refused(self, reply: bytes, count: int) -> None:
        """Count commands that were refused before it was known what they are."""
        self._add(UNKNOWN, count, 0.0)
        self.fail(UNKNOWN, reply, count)

    def ended(self, slot: Slot) -> None:
        """Count the commands of a slot whose reply is there."""
        family = slot.command.family
        self._add(family, slot.count, self._clock() - slot.arrived)
        if slot.reply[:1] == b"-":
            self.fail(family, slot.reply, slot.count)

    def end_writes(self) -> None:
        """Time the writes whose replies were made."""
        now, times, seconds = self._clock(), self.times[WRITE], 0.0
        for arrived, count in self.written.items():  # `_add`, inlined: a turn may have many
            times[bisect_left(BOUNDS_S, now - arrived)] += count
            seconds += count * (now - arrived)
        times[-1] += seconds
        self.written.clear()

    def fail(self, family: str, reply: bytes, count: int = 1) -> None:
        """Note that so many commands were answered with an error."""
        result = _RESULTS.get(reply.split(None, 1)[0], Result.ERROR)
        self.failed[family, result] += count

    def counts(self) -> dict[tuple[str, Result], int]:
        """Return how many commands were answered, by family and result."""
        answered = {family: int(sum(times[:-1])) for family, times in self.times.items()}
        if untimed := self.lone_reads % EVERY_READ:
            answered[READ] = answered.get(READ, 0) + untimed
        failed: defaultdict[str, int] = defaultdict(int)
        for (family, _), count in self.failed.items():
            failed[family] += count
        well = {(family, Result.OK): count - failed[family] for family, count in answered.items()}
        return well | self.failed

    def _add(self, family: str, count: int, took_s: float) -> None:
        times = self.times[family]
        times[bisect_left(BOUNDS_S, took_s)] += count
        times[-1] += count * took_s


def no_times() -> list[float]:
    """Return the times of a family that no command had."""
    return [0.0] * (len(BOUNDS_S) + 2)
