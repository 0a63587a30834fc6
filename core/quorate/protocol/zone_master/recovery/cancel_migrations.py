"""A person cancels migrations of one zone: all that are named, or none.

Each is named with the version of its partition's row that the person saw. docs/protocol.md,
section 6.
"""

from collections.abc import Callable, Mapping

from quorate.protocol.status import Cancellation
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import PartitionState
from quorate.protocol.zone_master.view.status import migration_status
from quorate.protocol.zone_master.zone import Zone


def cancel_migrations(
    zone: Zone, versions: Mapping[int, int], is_busy: Callable[[int], bool], dry_run: bool
) -> Cancellation:
    """Cancel the active migrations of the partitions in `versions`, or say what that would do.

    `versions`: partition -> version of its row; `is_busy`: whether its row is being written. The
    rows before the migrations stay, at a higher version.
    """
    refusals = [
        f"zone {zone.record.name}, partition {partition}: {why}"
        for partition, version in sorted(versions.items())
        if (why := _refusal(zone, partition, version, is_busy))
    ]
    if refusals:
        return Cancellation(refusals=tuple(refusals))
    parts = [zone.parts[partition] for partition in sorted(versions)]
    if not dry_run:
        for part in parts:
            _cancel(zone, part)
    told = [migration_status(part) for part in parts]
    return Cancellation(tuple(each for each in told if each is not None))


def _refusal(zone: Zone, partition: int, version: int, is_busy: Callable[[int], bool]) -> str:
    part = zone.parts.get(partition)
    if not 0 <= partition < zone.record.partitions:
        return f"there is none: write a number from 0 to {zone.record.partitions - 1}"
    if part is None:
        return "it has no row, so nothing moves: `quorate describe zone` says what it waits for"
    if part.row.version != version:
        return (
            f"its row has changed: it is at version {part.row.version}, --version is {version};"
            f" {_present(part)}; look again with `quorate status`"
        )
    if part.row.active is None:
        return "no migration is running, so there is none to cancel"
    if is_busy(partition) or not part.resolved:
        return "its row is being changed: look again with `quorate status`"
    if part.prepare_ms >= 0 or part.prepared:
        return (
            "its migration is prepared, and the destination may have stored the new row: it ends by"
            " itself, in seconds"
        )
    return ""


def _present(part: PartitionState) -> str:
    now = migration_status(part)
    if now is None:
        return "no migration is running now"
    road = " > ".join(node for node in (now.source, now.destination) if node)
    return f"now {now.kind} {road} is running"


def _cancel(zone: Zone, part: PartitionState) -> None:
    row = part.row
    assert row.active is not None
    after = ownership.failed(row, new_term=part.freeze_ms >= 0)
    zone.decided[row.partition] = (after, Why(Cause.CANCELLED, (row.active.migration_id,)))
