"""Whether a key that differed still differs when it is read again, all copies having moved on.

Called for a candidate of `quorate_spark.compare_rows` once every copy has passed everything that
any copy knew of after the candidate was seen.  The copies given must be of that later reading.
"""

import enum
from typing import NamedTuple

from quorate_spark.compare_counters import Settled
from quorate_spark.compare_rows import Baseline, Candidate, KeyState, RowSeen, compare_key, digest
from quorate_spark.read_copies import StoredRow, read_key
from quorate_spark.settings import Settings
from quorate_spark.verdict import CopyRow, KeyDifference, printable_key


class Again(enum.Enum):
    """What reading again says of the difference."""

    CONFIRMED = "the same row differs still"
    GONE = "deleted, overwritten or alike now"
    OTHER = "differs, but with another winning row"


class Rechecked(NamedTuple):
    """`difference` is there when it is CONFIRMED."""

    again: Again
    difference: KeyDifference | None = None


def recheck(
    candidate: Candidate, now: Settled, zone: str, cluster: str, settings: Settings
) -> Rechecked:
    """Read the key again on every copy.  Unreadable when a copy cannot be read."""
    partition, key, winner = candidate
    stored = {copy.node: read_key(copy, key, zone, cluster, settings) for copy in now.copies}
    rows = [row_seen(node, row) for node, row in stored.items() if row is not None]
    baseline = Baseline(partition, tuple(stored), now.settled_upto)
    judgement = compare_key(rows, baseline)
    what = judgement.what
    if judgement.state is KeyState.UNSETTLED and judgement.winner == winner:
        # Every copy has passed all counters given out when this one was seen, and it is above:
        # nobody gave it out.
        what = ("hwm",)
    if not what:
        return Rechecked(Again.GONE)
    if judgement.winner != winner:
        return Rechecked(Again.OTHER)
    copies = tuple(
        _copy_row(copy.node, index, stored[copy.node]) for index, copy in enumerate(now.copies)
    )
    return Rechecked(
        Again.CONFIRMED,
        KeyDifference(partition, printable_key(key), key.hex(), what, copies),
    )


def row_seen(node: str, row: StoredRow) -> RowSeen:
    """The row as it is compared."""
    _, counter, term, expires_at, value = row
    return RowSeen(node, counter, term, expires_at, None if value is None else digest(value))


def _copy_row(node: str, replica_index: int, row: StoredRow | None) -> CopyRow:
    if row is None:
        return CopyRow(node, replica_index, present=False)
    _, counter, term, expires_at, value = row
    if value is None:
        return CopyRow(node, replica_index, True, counter, term, expires_at, tombstone=True)
    return CopyRow(
        node, replica_index, True, counter, term, expires_at, False, len(value), digest(value).hex()
    )
