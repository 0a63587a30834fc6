"""Reads a key that differed again, on every copy, after all copies have moved on.

Called for a candidate of `quorate_spark.comparing.compare_rows` once every copy has passed
everything that any copy knew of after the candidate was seen.  The copies given must be of that
later reading.
"""

from quorate.facts.keyspace import printable
from quorate_spark.comparing.compare_counters import Settled
from quorate_spark.comparing.compare_rows import (
    Again,
    Baseline,
    Candidate,
    RowSeen,
    digest,
    judge_again,
)
from quorate_spark.reading.agent_link import Cluster
from quorate_spark.reading.read_copies import StoredRow, read_key
from quorate_spark.settings import Settings
from quorate_spark.verdict import CopyRow, KeyDifference


def recheck(
    candidate: Candidate, now: Settled, zone: str, cluster: Cluster, settings: Settings
) -> KeyDifference | Again:
    """Return the difference if the same row still differs, else what became of it.

    Raises Unreadable if a copy cannot be read.
    """
    partition, key, _ = candidate
    stored = {copy.node: read_key(copy, key, zone, cluster, settings) for copy in now.copies}
    rows = [row_seen(node, row) for node, row in stored.items() if row is not None]
    again, what = judge_again(candidate, rows, Baseline(partition, tuple(stored), now.settled_upto))
    if again is not Again.CONFIRMED:
        return again
    copies = tuple(
        copy_row(copy.node, copy.state.replica_index, stored[copy.node]) for copy in now.copies
    )
    return KeyDifference(partition, printable(key), key.hex(), what, copies, now.settled_upto)


def row_seen(node: str, row: StoredRow) -> RowSeen:
    """Return the row in the form in which it is compared."""
    _, counter, term, expires_at, value = row
    return RowSeen(node, counter, term, expires_at, None if value is None else digest(value))


def copy_row(node: str, replica_index: int, row: StoredRow | None) -> CopyRow:
    """Return the row as a report shows it; None: the copy has none."""
    if row is None:
        return CopyRow(node, replica_index, present=False)
    _, counter, term, expires_at, value = row
    if value is None:
        return CopyRow(node, replica_index, True, counter, term, expires_at, tombstone=True)
    return CopyRow(
        node, replica_index, True, counter, term, expires_at, False, len(value), digest(value).hex()
    )
