"""Migrations that a person cancels. docs/protocol.md, section 6."""

from collections.abc import Callable

from quorate.protocol.master.decisions.verdict import IS_CHANGING, Verdict, verb
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.partition_state import PartitionState


def judge_cancellation(
    is_busy: Callable[[int], bool], part: PartitionState, dry_run: bool
) -> Verdict:
    """Return the row without the partition's active migration, at a higher version.

    `is_busy`: whether its row is being written.
    """
    row, active = part.row, part.row.active
    if active is None:
        return Verdict("no migration is running, so there is none to cancel")
    if is_busy(row.partition) or not part.resolved:
        return Verdict(IS_CHANGING)
    if part.prepare_ms >= 0 or part.prepared:
        return Verdict(
            "its migration is prepared, and the destination may have stored the new row: it ends by"
            " itself, in seconds"
        )
    to = active.destination.node if active.destination is not None else None
    road = " > ".join(node for node in (active.source, to) if node)
    after = ownership.failed(row, new_term=part.freeze_ms >= 0)
    return Verdict(
        sentence=f"{active.kind} {road} {verb(dry_run, 'be cancelled', 'is cancelled')}",
        change=(after, Why(Cause.CANCELLED, (active.migration_id,))),
    )
