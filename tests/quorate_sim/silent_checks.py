"""Voters that are dropped although their stores may still be there: which ones may be."""

from collections.abc import Collection, Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import MigrationKind, PartitionRow
from quorate.facts.topology import NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate_sim.node_filters import fits


def copies_given_up(
    record: ZoneRecord, old: PartitionRow, row: PartitionRow, had: Collection[Voter]
) -> int:
    """Return how many of the copies `had` this change of a row may take without replacing them.

    One that a person has made anew; in memory those of voters that are dropped. `check_silent` has
    judged them when the DROP began; a row may still name one as owner, if its write failed that
    says otherwise."""
    active = old.active
    if row.active is not None or active is None:
        return 0
    if active.is_erasure:
        return 1
    if active.kind is not MigrationKind.DROP or record.persistent:
        return 0
    return len([v for v in had if v not in row.voters])


def check_silent(
    record: ZoneRecord,
    old: PartitionRow,
    row: PartitionRow,
    known: Mapping[str, NodeRecord],
    decided: ZoneRecord | None,
) -> None:
    """Raise InvariantError if a DROP begins that takes a voter without a reason.

    `known`, `decided`: the registrations and the zone's record of the master that decided it, as it
    had written them or was about to. A voter may be dropped if it is one copy too many, if its
    store is gone for good, or, in memory, if its node has left, fits the zone and is no data node
    any more. timer_checks.py judges when data nodes may change."""
    active = row.active
    if active is None or active == old.active or active.kind is not MigrationKind.DROP:
        return
    if active.is_erasure or len(active.voters) >= record.replicas:
        return
    for voter in row.voters:
        if voter in active.voters:
            continue
        registered = known.get(voter.node)
        if registered is None:
            raise InvariantError(f"I-1: {active} drops {voter}, which is not registered")
        if registered.zone_store(record.persistent) != voter.store:
            continue
        if record.persistent or registered.left_since_ms is None:
            raise InvariantError(f"I-1: {active} drops {voter}, which is there: {registered}")
        nodes = decided.data_nodes if decided is not None else None
        if decided is None or nodes is None or voter.node in nodes.nodes:
            raise InvariantError(f"I-1: {active} drops {voter}, which is a data node: {nodes}")
        if not fits(voter.node, decided):
            raise InvariantError(f"I-1: {active} drops {voter}, which {decided.filter} excludes")
