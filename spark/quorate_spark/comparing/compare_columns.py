"""Compares copies of a partition that come in key order, chunk by chunk, beside each other.

The rule is that of `compare_rows`.  What most keys are, the same settled row on every copy or
unsettled, is counted without Python work for each; all others go through `PartitionTally.count`.

At most one chunk of each copy is in memory, however large the partition is: the keys up to the
lowest last key of these chunks are compared, and the chunks that are used up are followed by the
next ones.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate_spark.comparing.compare_rows import (
    Baseline,
    Candidate,
    PartitionTally,
    RowSeen,
    digest,
)
from quorate_spark.row_columns import Flags, Numbers, RowColumns


def compare_copies(
    copies: Mapping[str, Iterator[RowColumns]], baseline: Baseline, candidates_max: int
) -> PartitionTally:
    """Return the tally of all rows of these copies, by node; they have values."""
    tally = PartitionTally(baseline)
    windows = [_Window(rows) for rows in copies.values()]
    while True:
        last_keys = [key for window in windows if (key := window.last_key()) is not None]
        if not last_keys:
            return tally
        upto = min(last_keys)
        found = [window.take(upto) for window in windows]
        _count(dict(zip(copies, found, strict=True)), tally, candidates_max)


class _Window:
    """The next rows of one copy."""

    def __init__(self, chunks: Iterator[RowColumns]) -> None:
        self._chunks = chunks
        self._rows = NO_ROWS

    def last_key(self) -> bytes | None:
        """Return the last key that is here; None: there are no more rows."""
        while not len(self._rows):
            following = next(self._chunks, None)
            if following is None:
                return None
            self._rows = following
        return self._rows.key(len(self._rows) - 1)

    def take(self, upto: bytes) -> RowColumns:
        """Return the rows with keys up to this one, which go."""
        end = self._rows.count_upto(upto)
        found = self._rows.cut(0, end)
        self._rows = self._rows.cut(end, len(self._rows))
        return found


NO_ROWS = RowColumns.of_rows((), values=True)


def _count(found: dict[str, RowColumns], tally: PartitionTally, candidates_max: int) -> None:
    """Count the keys of one range, of which these are all rows."""
    found = _without_unsettled(found, tally)
    copies = list(found.values())
    agreed = _alike(copies)
    tally.settled += len(agreed[0])
    if all(len(places) == len(rows) for places, rows in zip(agreed, copies, strict=True)):
        return
    by_key: dict[bytes, list[RowSeen]] = {}
    for (node, rows), places in zip(found.items(), agreed, strict=True):
        left = np.ones(len(rows), np.bool_)
        left[places] = False
        for key, counter, term, expires_at, value in rows.where(left).rows():
            seen = RowSeen(
                node, counter, term, expires_at, None if value is None else digest(value)
            )
            by_key.setdefault(key, []).append(seen)
    for key in sorted(by_key):
        tally.count(key, by_key[key], candidates_max)


def _without_unsettled(
    found: dict[str, RowColumns], tally: PartitionTally
) -> dict[str, RowColumns]:
    """Count the keys that some copy shows above the settled counter; return the rows of others."""
    settled_upto = tally.baseline.settled_upto
    above = [rows.where(rows.counters > settled_upto) for rows in found.values()]
    above = [rows for rows in above if len(rows)]
    if not above:
        return found
    keys = pc.unique(pa.concat_arrays([rows.keys for rows in above]))
    winner = max((counter, term, key) for rows in above for counter, term, key in [_highest(rows)])
    highest = Candidate(tally.baseline.partition, winner[2], (winner[0], winner[1]))
    tally.add(
        PartitionTally(tally.baseline, unsettled=len(keys), highest=highest), len(tally.candidates)
    )
    return {
        node: rows.where(~pc.is_in(rows.keys, value_set=keys).to_numpy(zero_copy_only=False))
        for node, rows in found.items()
    }


def _highest(rows: RowColumns) -> tuple[int, int, bytes]:
    """Return the highest (counter, term, key)."""
    counter = int(rows.counters.max())
    rows = rows.where(rows.counters == counter)
    term = int(rows.terms.max())
    rows = rows.where(rows.terms == term)
    return counter, term, rows.key(len(rows) - 1)


def _alike(copies: Sequence[RowColumns]) -> list[Numbers]:
    """Return, for each copy, the places of rows that all copies have alike."""
    if not all(map(len, copies)):
        return [np.zeros(0, np.int64)] * len(copies)
    first, *others = copies
    places: list[Numbers] = [np.arange(len(first))]
    alike: Flags = np.ones(len(first), np.bool_)
    for rows in others:
        at, is_there = _places(first, rows)
        there = rows if at is None else rows.at(at)
        alike &= is_there
        alike &= first.counters == there.counters
        alike &= first.terms == there.terms
        alike &= first.expiries == there.expiries
        alike &= first.tombstones == there.tombstones
        if not first.values.equals(there.values):
            # Null beside a value is seen above: one of them is a tombstone.
            equal = pc.fill_null(pc.equal(first.values, there.values), True)
            alike &= equal.to_numpy(zero_copy_only=False)
        places.append(places[0] if at is None else at)
    return [each[alike] for each in places]


def _places(first: RowColumns, rows: RowColumns) -> tuple[Numbers | None, Flags]:
    """Return where each key of `first` is in `rows`, and whether it is; None: at its own place."""
    if first.keys.equals(rows.keys):
        return None, np.ones(len(first), np.bool_)
    found = pc.index_in(first.keys, value_set=rows.keys)
    is_there = pc.is_valid(found).to_numpy(zero_copy_only=False)
    return pc.fill_null(found, 0).to_numpy(zero_copy_only=False).astype(np.int64), is_there
