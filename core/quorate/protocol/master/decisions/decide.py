"""Does what a person decides about partitions of one zone: all that are named, or none.

Each is named with the version of its row that the person saw, so nothing is done that was decided
about another row. docs/protocol.md, section 7, "Recovery by a person".
"""

from collections.abc import Callable
from typing import assert_never

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.protocol.master.decisions.cancellations import judge_cancellation
from quorate.protocol.master.decisions.reopenings import judge_reopening
from quorate.protocol.master.decisions.resets import PersonReset
from quorate.protocol.master.decisions.restarts import judge_restart
from quorate.protocol.master.decisions.verdict import Verdict
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.recovery import PartitionAnswer, Recovery, RecoveryAction, RecoveryAnswer
from quorate.protocol.zone_master.decide_partition import PartitionState
from quorate.protocol.zone_master.zone_master import ZoneMaster


def recover(zone: ZoneMaster, asked: Recovery, now: Now) -> RecoveryAnswer:
    """Do what is asked, or say what it would do, or why it is refused."""
    judge = _judge(zone, asked, now)
    verdicts = {
        partition: _general(zone, partition, version, asked.dry_run) or judge(zone.parts[partition])
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
                zone.parts[partition].row.version,
                verdict.sentence,
                (verdict.change[0].version, verdict.change[0].term) if verdict.change else (0, 0),
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
    return answer


def _judge(zone: ZoneMaster, asked: Recovery, now: Now) -> Callable[[PartitionState], Verdict]:
    match asked.action:
        case RecoveryAction.CANCEL:
            return lambda part: judge_cancellation(zone.is_busy, part, asked.dry_run)
        case RecoveryAction.RESET:
            return PersonReset(zone, zone.resets, asked, now).judge
        case RecoveryAction.REOPEN:
            return lambda part: judge_reopening(zone, part, asked.dry_run, now)
        case RecoveryAction.RESTART:
            return lambda part: judge_restart(zone, part, asked)
        case _:
            assert_never(asked.action)


def _general(zone: ZoneMaster, partition: int, version: int, dry_run: bool) -> Verdict | None:
    """Return why no decision about the partition is taken; None if it may be."""
    part = zone.parts.get(partition)
    if not 0 <= partition < zone.record.partitions:
        return Verdict(f"there is none: write a number from 0 to {zone.record.partitions - 1}")
    if part is None:
        return Verdict("it has no row: `quorate describe zone` says what it waits for")
    row = part.row
    beside = zone.writing.get(partition // SHARD_PARTITIONS, {})
    if not dry_run and beside and partition not in beside:
        # It would be written after that, perhaps when agents are back.
        return Verdict("rows beside it are being written: look again in a moment")
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
