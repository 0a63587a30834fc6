"""Checks that a reading has the copies that a read in a batch needs.

Spark reads the copies that it is told.  If one is missing in a reading, its rows would be missing
in a query, without an error.  So a query fails if

- no agent owns a copy of a partition that is needed, or
- a replica index that is needed has no owner, or several.

Agents are asked in turn: while ownership changes, one may tell what was before, and the next what
is after.  So they are asked a few times before a query fails.

Where a query says nothing of replica indices, it fails for index 0 only: by it a query gets each
row once.  A backup that is away keeps none from being read.
"""

import time
from collections.abc import Callable, Sequence

from quorate_spark.copies import CopySeen, Reading, absence, told_absent
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.sources.narrowing import Wanted

READINGS_MAX = 3
PAUSE_S = 0.5
"""Seconds between two readings."""


def read_needed(read: Callable[[], Reading], zone: str, wanted: Wanted) -> Reading:
    """Return a reading with each copy that is needed.  Raises Unreadable if the last has not."""
    reading = read()
    for _ in range(READINGS_MAX - 1):
        try:
            check_needed(reading, zone, wanted, backups=True)
        except Unreadable:
            time.sleep(PAUSE_S)
            reading = read()
        else:
            return reading
    check_needed(reading, zone, wanted)
    return reading


def check_needed(reading: Reading, zone: str, wanted: Wanted, backups: bool = False) -> None:
    """Raise Unreadable unless the reading has each copy that is needed.

    `backups`: nor may any other index have several owners.

    A query that names nodes needs the copies that these own, and they are in any reading.
    """
    if wanted.nodes is not None:
        return
    needed = wanted.partitions_of(reading.partitions)
    if needed is None:
        problem = absence(reading, zone, 0, 0)
    else:
        problem = told_absent(sorted(needed - reading.owned.keys()))
    if problem:
        raise Unreadable(problem)
    for partition, copies in reading.owned.items():
        if needed is None or partition in needed:
            _check_owners(partition, copies, wanted.replica_indexes, backups)


def _check_owners(
    partition: int, copies: Sequence[CopySeen], wanted: frozenset[int] | None, backups: bool
) -> None:
    """Raise Unreadable unless each replica index that is needed has one owner.

    Of the indices that a query names, those above the highest one that is owned are not needed: a
    zone has so many replicas or more.
    """
    owned = [copy.state.replica_index for copy in copies]
    needed = {0} if wanted is None else wanted.intersection(range(max(owned) + 1))
    if backups and wanted is None:
        needed = {0, *owned}
    for index in sorted(needed):
        if owned.count(index) != 1:
            owners = ", ".join(f"{each.node}: {at}" for each, at in zip(copies, owned, strict=True))
            count = f"{owned.count(index)} owners" if index in owned else "no owner"
            raise Unreadable(
                f"partition {partition}: replica index {index} has {count} ({owners}): ownership is"
                " changing, or an owner is away or was not named: read again, and name every agent"
            )
