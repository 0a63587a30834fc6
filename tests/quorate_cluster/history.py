"""Whether what clients saw of single-writer registers could have come from one correct store.

Each key has one writer, which writes 1, 2, 3, … one after the other and gives the key up after the
first write whose outcome it does not know: such a write may take effect at any later time, so that
nothing after it could be judged.  Anybody reads.  Times are of one clock.
"""

import enum
import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

ABSENT = 0
"""What a read of a key that is not there has seen."""


class Outcome(enum.Enum):
    """What the client was told of a write."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """It was told that nothing was done."""
    UNKNOWN = "unknown"
    """It was told that nobody knows, or nothing at all."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of `value` to `key`, from asking to answer."""

    key: str
    value: int
    start: float
    end: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Read:
    """One answered read of `key`; `value` is ABSENT when there was none."""

    key: str
    value: int
    start: float
    end: float


def find_violations(writes: Iterable[Write], reads: Iterable[Read]) -> list[str]:
    """One sentence per read that no correct store could have answered so; empty when all is well.

    A read sees a value that was written before it ended and was not refused; at least the last one
    acknowledged before it began; at least what any read saw that ended before it began.
    """
    written: dict[str, list[Write]] = defaultdict(list)
    seen: dict[str, list[Read]] = defaultdict(list)
    for write in writes:
        written[write.key].append(write)
    for read in reads:
        seen[read.key].append(read)
    found: list[str] = []
    for key in sorted({*written, *seen}):
        found += _of_writes(written[key])
        found += _of_reads(written[key], seen[key])
    return found


def _of_writes(writes: list[Write]) -> list[str]:
    """What the writer itself did that makes its key useless to judge."""
    found: list[str] = []
    for before, write in itertools.pairwise(writes):
        if before.outcome is Outcome.UNKNOWN:
            found.append(f"{write.key}: written again after a write of unknown outcome")
        if write.value <= before.value or write.start < before.end:
            found.append(f"{write.key}: writes {before.value} and {write.value} are not in order")
    return found


def _of_reads(writes: list[Write], reads: list[Read]) -> list[str]:
    by_value = {write.value: write for write in writes}
    acknowledged = sorted(
        (write.end, write.value, "acknowledged")
        for write in writes
        if write.outcome is Outcome.ACKNOWLEDGED
    )
    read_before = sorted((read.end, read.value, "read") for read in reads)
    known = sorted(acknowledged + read_before)
    found: list[str] = []
    at = 0
    least, why = ABSENT, ""
    for read in sorted(reads, key=lambda each: each.start):
        while at < len(known) and known[at][0] < read.start:
            if known[at][1] > least:
                least, why = known[at][1], known[at][2]
            at += 1
        write = by_value.get(read.value)
        if read.value == ABSENT:
            if least > ABSENT:
                found.append(f"{read.key}: absent although {least} was {why} before")
        elif write is None:
            found.append(f"{read.key}: read {read.value}, which was never written")
        elif write.start > read.end:
            found.append(f"{read.key}: read {read.value} before it was written")
        elif write.outcome is Outcome.REFUSED:
            found.append(f"{read.key}: read {read.value}, whose writer was told it was not done")
        elif read.value < least:
            found.append(f"{read.key}: read {read.value} although {least} was {why} before")
    return found
