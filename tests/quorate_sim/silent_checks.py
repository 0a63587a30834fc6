"""Voters that are dropped although their stores may still be there: which ones may be."""

from collections.abc import Collection, Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import MigrationKind, PartitionRow
from quorate.facts.topology import NodeRecord, Voter
from quorate.facts.zone import ZoneRecord


def copies_given_up(
    record: ZoneRecord, old: PartitionRow, row: PartitionRow, had: Collection[Voter]
) -> int:
    """How many of the copies `had` this change of a row may take without making up for them.

    One that a person has made anew; in memory those of voters that are dropped and own nothing."""
    active = old.active
    if row.active is not None or active is None:
        return 0
    if active.is_erasure:
        return 1
    if active.kind is not MigrationKind.DROP or record.persistent:
        return 0
    return len([v for v in had if v not in row.voters and v.node not in old.owners])


def check_silent(
    record: ZoneRecord, old: PartitionRow, row: PartitionRow, known: Mapping[str, NodeRecord]
) -> None:
    """Raise InvariantError if a DROP begins that takes a voter of which the master, by the
    registrations that it knew, had no reason to think that it has left, and that is not one copy
    too many."""
    active = row.active
    if active is None or active == old.active or active.kind is not MigrationKind.DROP:
        return
    if active.is_erasure or len(active.voters) >= record.replicas:
        return
    for voter in row.voters:
        registered = known.get(voter.node)
        if voter in active.voters or registered is None:
            continue
        is_dead = registered.zone_store(record.persistent) != voter.store
        is_silent = not record.persistent and registered.left_since_ms is not None
        if not is_dead and not is_silent:
            raise InvariantError(f"I-1: {active} drops {voter}, which is there: {registered}")
