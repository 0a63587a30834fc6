"""When the machine stood still under the processes of a test: its processors, or its disk.

An agent that does not run for as long as the master waits for a sign of it cannot be told from one
that is lost: the master goes on without it, and clients are told what docs/clients.md says of a
loss.  Of a machine that stood still for so long nobody can say whether agents serve on it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from quorate.protocol.master.master import PING_MS
from quorate.protocol.settings import DEFAULTS

SILENCE_S = DEFAULTS.failure_detection_ms / 1000
BOUND_S = SILENCE_S - PING_MS / 1000
"""So much of any SILENCE_S a machine may stand still and nobody is taken for lost: the master asks
at least once in the rest."""

_PROGRAM = Path(__file__).with_name("standstill_watch.py")
_watches: list["StandstillWatch"] = []
"""Those that look now: the tests of a run share one, and a test of watches has its own."""


class Standstill(NamedTuple):
    """`what` ("cpu 0", "disk") stood still from `began` (time.monotonic) for so many seconds."""

    what: str
    began: float
    seconds: float


class StandstillWatch:
    """`with StandstillWatch() as watch:` looks at every processor and the disk of temporary files.

    It costs 20 short looks per second and processor, and two blocks per second to the disk.
    """

    def __enter__(self) -> Self:
        self._stolen = _stolen_and_all()
        self._noted = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-I", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=self._noted,
            start_new_session=True,  # Ctrl-C is not for it
        )
        _watches.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _watches.remove(self)
        with self._process:
            self._process.kill()
        self._noted.close()

    @property
    def pid(self) -> int:
        """The process that looks."""
        return self._process.pid

    @property
    def looks(self) -> bool:
        """Whether it still does."""
        return self._process.poll() is None

    def since(self, moment: float) -> list[Standstill]:
        """Those that ended after `moment` (time.monotonic), or go on; each as long as was noted."""
        descriptor = self._noted.fileno()
        text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()
        found: dict[tuple[str, float], float] = {}
        for line in text.rpartition("\n")[0].splitlines():  # the last may be half written
            what, began, seconds = line.rsplit(maxsplit=2)
            found[what, float(began)] = float(seconds)  # noted again, it is longer
        return [
            Standstill(what, began, seconds)
            for (what, began), seconds in found.items()
            if began + seconds > moment
        ]

    def stolen(self) -> float:
        """Which part of the processors' time others took since the start, 0 to 1 (Linux: steal)."""
        stolen, whole = _stolen_and_all()
        return (stolen - self._stolen[0]) / max(whole - self._stolen[1], 1)


def standstill_s(begin: float, end: float) -> float:
    """For how many seconds between these moments the machine stood still; 0 if nobody looks."""
    return max((_covered(each.since(begin), begin, end) for each in _watches), default=0.0)


def stood_still_since(moment: float) -> bool:
    """Whether the machine did, for so long that agents may be taken for lost; not if nobody
    looks."""
    return any(worst_s(each.since(moment)) >= BOUND_S for each in _watches)


def worst_s(standstills: Iterable[Standstill]) -> float:
    """How much of the worst SILENCE_S the processors stood still, or the disk.  Any processor: a
    question and its answer need those of both processes."""
    noted = list(standstills)
    return max(
        _worst_s([each for each in noted if each.what.startswith("cpu ")]),
        _worst_s([each for each in noted if each.what == "disk"]),
    )


def _worst_s(standstills: list[Standstill]) -> float:
    worst = 0.0
    apart = _apart(standstills)
    for first, (begin, _) in enumerate(apart):
        end = begin + SILENCE_S
        within = 0.0
        for begins, ends in apart[first:]:
            if begins >= end:
                break
            within += min(ends, end) - begins
        worst = max(worst, within)
    return worst


def _covered(standstills: list[Standstill], begin: float, end: float) -> float:
    """For how many of the seconds from `begin` to `end` anything of it stood still."""
    return sum(max(0.0, min(b, end) - max(a, begin)) for a, b in _apart(standstills))


def _apart(standstills: list[Standstill]) -> list[tuple[float, float]]:
    """(begin, end) of all of them, in order, those that meet joined."""
    joined: list[tuple[float, float]] = []
    for _, begin, seconds in sorted(standstills, key=lambda each: each.began):
        end = begin + seconds
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def describe(standstills: Iterable[Standstill]) -> str:
    """For people: how often each stood still, and the longest."""
    seconds: dict[str, list[float]] = {}
    for each in standstills:
        seconds.setdefault(each.what, []).append(each.seconds)
    said = [
        f"{what} stood still {len(its)} x, at most {max(its):.2f} s"
        for what, its in sorted(seconds.items())
    ]
    return "; ".join(said) or "it never stood still"


def _stolen_and_all() -> tuple[int, int]:
    """Ticks that others took from the processors, and all ticks, since the machine began."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)
