"""Reports of a copy: to the master, and to tools that compare copies."""

from collections.abc import Iterable

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import ASIDE_KEPT_MS
from quorate.protocol.copies.totals import DIGEST_BYTES
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.master import CopyReport, CopySummaries
from quorate.protocol.messages.tools import CopyDigest, CopyState, RowsAside


def report(copy: Copy) -> CopyReport:
    """Return the report for the master."""
    return CopyReport(
        copy.partition,
        copy.version,
        copy.prepared,
        copy.prepared_migration,
        copy.last_term,
        copy.lwm,
        copy.highest_held(),
        copy.adopted,
        copy.space.byte_count(),
    )


def copy_summaries(zone: str, copies: Iterable[Copy]) -> CopySummaries:
    """Return how large and how far the adopted copies are."""
    adopted = [
        (copy.partition, copy.space.byte_count(), copy.last_term, copy.durable_lwm)
        for copy in copies
        if copy.adopted
    ]
    return CopySummaries(zone, tuple(adopted))


def report_with_row(copy: Copy, row: PartitionRow | None, role: Primary | None) -> CopyReport:
    """Return the report for a master that has lost its rows; `row`: the newest one known here."""
    unfrozen = role.term if role is not None and not role.frozen else 0
    return msgspec.structs.replace(
        report(copy), promised=copy.promise_term, row=row, unfrozen=unfrozen
    )


def inventory(zone: ZoneCopies, rows: bool = False) -> tuple[CopyReport, ...]:
    """Return a report of every copy, for the master.

    Evicted copies are included, because the row that evicted them may be newer than the master's.
    `rows`: include every row, for a master that has lost them.
    """
    if not rows:
        copies = [zone.copies[partition] for partition in sorted(zone.copies)]
        return tuple([report(copy) for copy in copies if copy.present or copy.evicted_by])
    known = {row.partition for row in zone.table if row is not None} | zone.copies.keys()
    return tuple(
        [
            report_with_row(copy, _newest_row(zone, copy), zone.roles.get(copy.partition))
            for copy in map(zone.copy_of, sorted(known))
        ]
    )


def _newest_row(zone: ZoneCopies, copy: Copy) -> PartitionRow | None:
    known = filter(None, (zone.table[copy.partition], copy.row, copy.evicted_by))
    return max(known, key=lambda row: row.version, default=None)


def tell_digest(copy: Copy, mark: int) -> CopyDigest:
    """Return, for a validator, the present digest and the one at the last mark.

    If `mark` is above the LWM, the digest at that counter is noted too, for a later report.
    """
    if mark > copy.lwm:
        copy.mark_at = mark
    return CopyDigest(
        copy.partition,
        copy.promise_term,
        copy.adopted,
        copy.lwm,
        copy.space.row_count(),
        copy.space.digest().to_bytes(DIGEST_BYTES),
        copy.mark[0],
        copy.mark[1].to_bytes(DIGEST_BYTES),
    )


def tell_state(copy: Copy, node: str) -> CopyState:
    """Return, for a validator, everything but rows and log."""
    replicas = copy.row.replicas if copy.row else ()
    return CopyState(
        copy.partition,
        replicas.index(node) if node in replicas else -1,
        copy.version,
        copy.promise_term,
        copy.adopted,
        copy.lwm,
        max(copy.hwm, copy.lwm),
        tuple(sorted(pair for ranges in copy.above.values() for pair in ranges)),
        copy.lineage,
        copy.space.row_count(),
        copy.space.byte_count(),
        copy.settled,
        copy.state.value,
        min(copy.majority, copy.lwm),
    )


def tell_aside(copy: Copy) -> list[RowsAside]:
    """Return what is set aside of the copy, oldest first, for a tool."""
    return [
        RowsAside(
            copy.partition,
            kept.generation,
            kept.since_ms,
            kept.since_ms + ASIDE_KEPT_MS,
            kept.reset_term,
            kept.last_term,
            kept.lwm,
            kept.rows,
            kept.bytes,
        )
        for kept in copy.kept_rows
    ]
