"""Does what a person decides about partitions of one zone: all that are named, or none.

Each is named with the version of its row that the person saw, so nothing is done that was decided
about another row. docs/protocol.md, section 7, "Recovery by a person".
"""

from collections.abc import Callable
from functools import partial
from typing import assert_never

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.protocol.master.decisions.cancellations import judge_cancellation
from quorate.protocol.master.decisions.rebuilds import judge_rebuild
from quorate.protocol.master.decisions.reopenings import judge_reopening
from quorate.protocol.master.decisions.resets import PersonReset
from quorate.protocol.master.decisions.restarts import judge_restart
from quorate.protocol.master.decisions.verdict import Verdict
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.recovery import PartitionAnswer, Recovery, RecoveryAction, RecoveryAnswer
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.zone_master import ZoneMaster


def recover(zone: ZoneMaster, asked: Recovery, now: Now) -> RecoveryAnswer:
    """Do what is asked, or say what it would do, or why it is refused."""
    judge = _judge(zone, asked, now)
    verdicts = {
        partition: _place(zone, partition, asked.dry_run) or judge(partition, version)
        for partition, version in sorted(asked.versions.items())
    }
    about = f"zone {zone.record.name}"
    refusals = tuple(
        f"{about}, partition {partition}: {verdict.refusal}"
        for partition, verdict in verdicts.items()
        if verdict.refusal
    )
    if not verdicts:
        refusals = (f"{about}: no partition is named: name at least one",)
    if refusals:
        return RecoveryAnswer(refusals=refusals)
    answer = RecoveryAnswer(
        tuple(
            PartitionAnswer(
                partition,
                verdict.seen or zone.parts[partition].row.version,
                verdict.sentence,
                verdict.change[0] if verdict.change else None,
            )
            for partition, verdict in verdicts.items()
        )
    )
    if not asked.dry_run:
        changes = {p: verdict.change for p, verdict in verdicts.items() if verdict.change}
        zone.decided |= changes
        rows = [row for row, _ in changes.values()]
        if asked.action is RecoveryAction.RESET:
            zone.resets.report(rows, ", as a person decided")
        elif asked.action is RecoveryAction.REOPEN:
            zone.empty_start.report(rows, "a person reopened them")
        elif asked.action is RecoveryAction.REBUILD:
            zone.recovery.discard(rows)
    return answer


def _judge(zone: ZoneMaster, asked: Recovery, now: Now) -> Callable[[int, int], Verdict]:
    """Return what judges one partition, by its number and the version of its row that was seen."""
    judge: Callable[[PartitionState], Verdict]
    dry_run = asked.dry_run
    match asked.action:
        case RecoveryAction.REBUILD:
            named = asked.versions
            return lambda partition, version: judge_rebuild(
                zone, partition, version, named, dry_run, now
            )
        case RecoveryAction.CANCEL:
            judge = partial(judge_cancellation, zone.is_busy, dry_run=dry_run)
        case RecoveryAction.RESET:
            judge = PersonReset(zone, zone.resets, asked, now).judge
        case RecoveryAction.REOPEN:
            judge = partial(judge_reopening, zone, dry_run=dry_run, now=now)
        case RecoveryAction.RESTART:
            judge = partial(judge_restart, zone, asked=asked)
        case _:
            assert_never(asked.action)
    return lambda partition, version: (
        _row(zone, partition, version, dry_run) or judge(zone.parts[partition])
    )


def _place(zone: ZoneMaster, partition: int, dry_run: bool) -> Verdict | None:
    """Return why no decision is taken about a partition of that number; None if one may be."""
    if not 0 <= partition < zone.record.partitions:
        return Verdict(f"there is none: write a number from 0 to {zone.record.partitions - 1}")
    beside = zone.writing.get(partition // SHARD_PARTITIONS, {})
    if not dry_run and beside and partition not in beside:
        # It would be written after that, perhaps when agents are back.
        return Verdict("rows beside it are being written: look again in a moment")
    return None


def _row(zone: ZoneMaster, partition: int, version: int, dry_run: bool) -> Verdict | None:
    """Return why no decision is taken about the partition's row; None if one may be."""
    part = zone.parts.get(partition)
    if part is None and partition in zone.recovery.set_aside:
        return Verdict("its stored row is invalid: repair it, or have it rebuilt (`rebuild`)")
    if part is None:
        return Verdict("it has no row: `quorate describe zone` says what it waits for")
    row = part.row
    if not version and not dry_run:
        return Verdict(
            f"no version of its row was named: it is at version {row.version} now; {_present(row)}"
        )
    if version and row.version != version:
        return Verdict(
            f"its row has changed: it is at version {row.version}, and version {version} was named;"
            f" {_present(row)}; look again"
        )
    return None


def _present(row: PartitionRow) -> str:
    """Return what the row says now, in words."""
    primary = row.primary.node if row.primary is not None else "none"
    moving = "no migration is running"
    if row.active is not None:
        to = row.active.destination.node if row.active.destination is not None else None
        road = " > ".join(node for node in (row.active.source, to) if node)
        moving = f"{row.active.kind} {road} is running"
    return f"primary {primary}, voters {', '.join(row.voter_nodes)}, {moving}"
