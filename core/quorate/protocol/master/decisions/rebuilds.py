"""Rows that a person has rebuilt from what agents durably know.

These are rows that are set aside as invalid, and lost ones of which no quorum is left, which nobody
else can decide about. A valid row is never rebuilt: it may be newer than what agents know.
docs/protocol.md, section 7.
"""

from collections.abc import Collection

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.zone import WriteMode
from quorate.protocol.master.decisions.verdict import IS_CHANGING, Verdict, verb
from quorate.protocol.metastore import DamagedRow
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.recovery.rebuild_zone import seen_version
from quorate.protocol.zone_master.recovery.recover_rows import Waiting
from quorate.protocol.zone_master.view.status import listed
from quorate.protocol.zone_master.zone_master import ZoneMaster


def judge_rebuild(
    zone: ZoneMaster,
    partition: int,
    version: int,
    asked: Collection[int],
    dry_run: bool,
    now: Now,
) -> Verdict:
    """Return the row that takes the place of the invalid or lost one.

    `version`: the number of the row that the person saw (`_seen_number`). `asked`: all partitions
    that the person named.
    """
    recovery = zone.recovery
    damaged, row = recovery.set_aside.get(partition), recovery.replacement(partition)
    seen = _seen_number(damaged, row)
    refusal = _refusal(zone, partition, version, seen, asked, dry_run)
    if refusal:
        return Verdict(refusal)
    # An agent that refuses the zone reports nothing of it: it counts as away.
    unheard = [node for node in recovery.ask(now) if zone.nodes.holder(node) is not None]
    if isinstance(row, Waiting) and row.last is None:
        who = "they" if row.nodes else ", ".join(unheard)
        asked_now = f"; {who} are being asked: try again in a moment" if unheard else ""
        return Verdict(f"its row cannot be rebuilt yet: {row.why}{asked_now}")
    if isinstance(row, Waiting):
        assert row.last is not None
        missing = zone.empty_start.not_heard()
        if missing:
            return Verdict(
                "agents that may know a newer row of it, and serve it, have not told what they"
                f" have: start or remove {', '.join(missing)}"
            )
        sentence, row = _without_quorum(row.last.row, row.why), row.last.next
    else:
        sentence = _with_quorum(zone, row)
    if damaged is not None:
        replaced = verb(dry_run, "be discarded", "is discarded")
        sentence = f"its invalid row {replaced} ({damaged.why}); {sentence}"
    away = [node for node in zone.nodes.registered() if zone.nodes.holder(node) is None]
    if away:
        sentence += f" (start {', '.join(away)} first, if that may be)"
    if zone.record.write_mode is WriteMode.PRIMARY_SYNC:
        sentence += "; writes that only its former primary has may be lost"
    return Verdict(sentence=sentence, change=(row, Why(Cause.REBUILT)), seen=seen)


def _refusal(
    zone: ZoneMaster, partition: int, version: int, seen: int, asked: Collection[int], dry_run: bool
) -> str:
    """Return why the partition is not one to rebuild, or not as the person saw it; "" if it is.

    `version`: the number that the person named. `seen`: the present one.
    """
    recovery = zone.recovery
    part, damaged = zone.parts.get(partition), recovery.set_aside.get(partition)
    if damaged is None and part is not None:
        return (
            f"its row is valid (version {part.row.version}), so there is nothing to rebuild: what"
            " agents know may be older"
        )
    if damaged is None and zone.is_changing(partition):
        return IS_CHANGING
    if not seen:
        waits = recovery.waiting or "`quorate describe zone` says what it waits for"
        return f"it has no row, and gets one without a decision: {waits}"
    if version != seen and not (dry_run and not version):
        named = f", and {version} was named" if version else ", and none was named"
        if damaged is None:
            return f"the newest row of it that was told is number {seen}{named}: look again"
        return f"its invalid row is number {seen}{named}: {damaged.why}; look again"
    why = damaged.why if damaged is not None else None
    beside = [p for p, each in sorted(recovery.set_aside.items()) if each.why == why]
    if not set(beside) <= set(asked):
        return (
            f"its whole object cannot be read, and goes with it: name all of its partitions"
            f" ({listed(beside)}), or repair the object"
        )
    return ""


def _seen_number(damaged: DamagedRow | None, row: PartitionRow | Waiting) -> int:
    """Return the number by which a person names what there is of a partition's row; 0: nothing.

    `row`: what is rebuilt of it.
    """
    last = row.last.row.version if isinstance(row, Waiting) and row.last is not None else 0
    # Both together, so that who agreed to a row of a quorum has not agreed to one without.
    return last if damaged is None else seen_version(damaged) + last


def _with_quorum(zone: ZoneMaster, row: PartitionRow) -> str:
    """Return what is known of the rebuilt row, and that nothing is lost."""
    voters = sorted(row.voter_nodes)
    told = [node for node in voters if zone.recovery.has_reported(node)]
    primary = row.primary.node if row.primary is not None else "none"
    return (
        f"by what {', '.join(told)} know, its voters are {', '.join(voters)}, and {primary} becomes"
        " primary in a new term; a quorum of them has told, so every acknowledged write is found,"
        " unless the partition was reset to a copy that is away"
    )


def _without_quorum(last: PartitionRow, why: str) -> str:
    """Return what is known of a row that no quorum can vouch for, and what follows."""
    return (
        f"the newest row of it that was told is number {last.version}, of"
        f" {', '.join(sorted(last.voter_nodes))}, and {why}: it is not served before it is reset to"
        " a copy that is left, or reopened if there is none; what only the lost stores had, or was"
        " decided and written later, is lost"
    )
