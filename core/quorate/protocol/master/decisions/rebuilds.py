"""Rows that are set aside as invalid, and that a person has rebuilt from what agents durably know.

A valid row is never rebuilt: it may be newer than what agents know. docs/protocol.md, section 7.
"""

from collections.abc import Collection

from quorate.facts.time import Now
from quorate.facts.zone import WriteMode
from quorate.protocol.master.decisions.verdict import IS_CHANGING, Verdict, verb
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
    """Return the row that takes the place of the invalid one.

    `version`: the number of the invalid row that the person saw. `asked`: all partitions that the
    person named.
    """
    recovery = zone.recovery
    part, damaged = zone.parts.get(partition), recovery.set_aside.get(partition)
    if damaged is None and part is not None:
        return Verdict(
            f"its row is valid (version {part.row.version}), so there is nothing to rebuild: what"
            " agents know may be older"
        )
    if damaged is None and zone.is_changing(partition):
        return Verdict(IS_CHANGING)
    if damaged is None:
        waits = recovery.waiting or "`quorate describe zone` says what it waits for"
        return Verdict(f"it has no row, and gets one without a decision: {waits}")
    seen = seen_version(damaged)
    if version != seen and not (dry_run and not version):
        named = f", and {version} was named" if version else ", and none was named"
        return Verdict(f"its invalid row is number {seen}{named}: {damaged.why}; look again")
    beside = [p for p, each in sorted(recovery.set_aside.items()) if each.why == damaged.why]
    if not set(beside) <= set(asked):
        return Verdict(
            f"its whole object cannot be read, and goes with it: name all of its partitions"
            f" ({listed(beside)}), or repair the object"
        )
    # An agent that refuses the zone reports nothing of it: it counts as away.
    unheard = [node for node in recovery.ask(now) if zone.nodes.holder(node) is not None]
    later = f"{', '.join(unheard)} are being asked: try again in a moment"
    row = recovery.replacement(partition)
    if isinstance(row, Waiting):
        why = f"{row.why}; {later}" if unheard else row.why
        return Verdict(f"its row cannot be rebuilt yet: {why}")
    if unheard:
        return Verdict(f"its row is not rebuilt yet: {later}")
    voters = sorted(row.voter_nodes)
    told = [node for node in voters if recovery.has_reported(node)]
    away = [node for node in zone.nodes.registered() if zone.nodes.holder(node) is None]
    primary = row.primary.node if row.primary is not None else "none"
    replaced = verb(dry_run, "be discarded", "is discarded")
    sentence = (
        f"its invalid row {replaced} ({damaged.why}); by what {', '.join(told)} know, its voters"
        f" are {', '.join(voters)}, and {primary} becomes primary in a new term; a quorum"
        " of them has told, so every acknowledged write is found, unless the partition was reset"
        " to a copy that is away"
    )
    if away:
        sentence += f" (start {', '.join(away)} first, if that may be)"
    if zone.record.write_mode is WriteMode.PRIMARY_SYNC:
        sentence += "; writes that only its former primary has may be lost"
    return Verdict(sentence=sentence, change=(row, Why(Cause.REBUILT)))
