"""Copies that were deleted although the metastore's row names them: which ones may be."""

from collections.abc import Mapping

from quorate.facts.partition_row import Link, PartitionRow
from quorate.facts.topology import Voter


def needs_copy(
    row: PartitionRow, copy: Voter, deleted_by: int, written: Mapping[int, PartitionRow]
) -> bool:
    """Whether the row needs the copy that its agent let go by the row of version `deleted_by`.

    A voter's copy is needed whichever row its agent acted by.  A destination may delete by a row
    from before its migration, which then fills it anew; so may one that a reset has left, because
    it was a destination then, and is not known to have heard of it.  `written`: all rows, by their
    versions.
    """
    if copy in row.voters:
        return True
    is_left = copy in row.left_by_reset
    if is_left and any(copy in link.voters for link in _links(row)):
        return True
    if not is_left and copy != _destination(row):
        return False
    since = row.version
    for version in sorted((v for v in written if v < row.version), reverse=True):
        then = written[version]
        if copy != _destination(then) and copy not in then.left_by_reset:
            break
        since = version
    return deleted_by >= since


def _links(row: PartitionRow) -> tuple[Link, ...]:
    return row.reset.links if row.reset is not None else ()


def _destination(row: PartitionRow) -> Voter | None:
    found = row.destination
    return Voter(found.node, found.store) if found is not None else None
