"""Judges whether the copies of a partition hold the same rows, as far as these are settled.

Pure; no Spark.  Let c be the lowest LWM of the copies, read before any row was.  Every copy then
holds every update up to c, and per key the highest counter wins, so:

- If a key's highest counter over all copies is at most c, no copy that was read touched the key
  above c.  All copies must show that very row.  Exception: a tombstone, which a copy may have
  purged, so that absence says the same.
- A key with a higher counter anywhere is *unsettled*: copies are read at different moments, and one
  may show a newer row than another.  It is counted, never damage.

This cannot see a newer update that left no row behind: between reading copy A and copy B a key is
deleted and its tombstone purged, or the whole partition is flushed.  So a key that differs is only
a *candidate*.  It is read again once every copy has passed what any copy knew of at the end of the
first reading (`quorate_spark.reading.recheck`).  By then the delete is applied everywhere, so a key
that still differs with the same winning row was never deleted: it is damage.
"""

import enum
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class RowSeen(NamedTuple):
    """A key's row on one copy.  `digest`: of the value; None for a tombstone."""

    node: str
    counter: int
    term: int
    expires_at: int
    digest: bytes | None


def digest(value: bytes) -> bytes:
    """Return the digest (SHA-256) by which values are compared."""
    return hashlib.sha256(value).digest()


@dataclass(frozen=True, slots=True)
class Baseline:
    """The facts about a partition from before its rows were read.

    `nodes`: the owners, hottest first; `settled_upto`: c, the counter up to which all of them hold
    all updates.
    """

    partition: int
    nodes: tuple[str, ...]
    settled_upto: int


class KeyState(enum.Enum):
    """The state of one key over all copies."""

    AGREE = "agree"
    UNSETTLED = "unsettled"
    DIFFER = "differ"


class KeyJudgement(NamedTuple):
    """The judgement of one key.

    `what`: the differing things in a fixed order, empty unless `state` is DIFFER; `winner`: the
    highest (counter, term) over all copies, (0, 0) if no copy has a row.
    """

    state: KeyState
    winner: tuple[int, int]
    what: tuple[str, ...] = ()


def compare_key(rows: Sequence[RowSeen], baseline: Baseline) -> KeyJudgement:
    """Judge one key by the rows that the baseline's copies showed; a copy without one has none."""
    if not rows:
        return KeyJudgement(KeyState.AGREE, (0, 0))
    winner = max((row.counter, row.term) for row in rows)
    if winner[0] > baseline.settled_upto:
        return KeyJudgement(KeyState.UNSETTLED, winner)
    what = []
    holders = {row.node for row in rows}
    all_tombstones = all(row.digest is None for row in rows)
    if not all_tombstones and any(node not in holders for node in baseline.nodes):
        what.append("missing")
    if not all_tombstones and any(row.digest is None for row in rows):
        what.append("tombstone")
    what += [
        name
        for name in ("counter", "term", "expires_at")
        if len({getattr(r, name) for r in rows}) > 1
    ]
    if len({row.digest for row in rows if row.digest is not None}) > 1:
        what.append("value")
    if len(holders) < len(rows):
        what.append("repeated")
    if not what:
        return KeyJudgement(KeyState.AGREE, winner)
    return KeyJudgement(KeyState.DIFFER, winner, tuple(what))


class Candidate(NamedTuple):
    """A key to read again, and its winning (counter, term)."""

    partition: int
    key: bytes
    winner: tuple[int, int]


class Again(enum.Enum):
    """The result of reading a candidate again."""

    CONFIRMED = "the same row differs still"
    GONE = "deleted, overwritten or alike now"
    OTHER = "differs, but with another winning row"


def judge_again(
    candidate: Candidate, rows: Sequence[RowSeen], later: Baseline
) -> tuple[Again, tuple[str, ...]]:
    """Judge a candidate by rows read again; return what differs too if it is CONFIRMED.

    `later.settled_upto` must have reached every counter that any copy knew of after the candidate
    was first seen.
    """
    judgement = compare_key(rows, later)
    what = judgement.what
    if judgement.state is KeyState.UNSETTLED and judgement.winner == candidate.winner:
        # It was there before, yet is above everything known since: its counter was never given out.
        what = ("hwm",)
    if not what:
        return Again.GONE, ()
    if judgement.winner != candidate.winner:
        return Again.OTHER, ()
    return Again.CONFIRMED, what


@dataclass(slots=True)
class PartitionTally:
    """The result of comparing the rows of one partition.  Tallies of disjoint sets of keys add up.

    `highest` is the unsettled key with the highest counter.  If that counter is above everything
    that any copy knows of afterwards, it was never given out, and the key never settles.
    """

    baseline: Baseline
    settled: int = 0
    unsettled: int = 0
    differing: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    highest: Candidate | None = None

    def count(self, key: bytes, rows: Sequence[RowSeen], candidates_max: int) -> None:
        """Judge one key and count it."""
        judgement = compare_key(rows, self.baseline)
        candidate = Candidate(self.baseline.partition, key, judgement.winner)
        match judgement.state:
            case KeyState.AGREE:
                self.settled += 1
            case KeyState.UNSETTLED:
                self.unsettled += 1
                self._raise_highest(candidate)
            case KeyState.DIFFER:
                self.differing += 1
                if len(self.candidates) < candidates_max:
                    self.candidates.append(candidate)

    def add(self, other: "PartitionTally", candidates_max: int) -> None:
        """Add another tally of the same partition; keep the first candidates by key."""
        self.settled += other.settled
        self.unsettled += other.unsettled
        self.differing += other.differing
        self.candidates = sorted([*self.candidates, *other.candidates])[:candidates_max]
        if other.highest is not None:
            self._raise_highest(other.highest)

    def _raise_highest(self, candidate: Candidate) -> None:
        # The key decides between equals, so that the order of counting does not matter.
        if self.highest is None or (candidate.winner, candidate.key) > (
            self.highest.winner,
            self.highest.key,
        ):
            self.highest = candidate
