"""Copies that a person restarts, or has dropped and made anew. docs/protocol.md, section 7."""

from quorate.facts.partition_row import (
    ERASURE,
    Migration,
    MigrationKind,
    PartitionRow,
    is_quorum,
)
from quorate.facts.topology import Holder
from quorate.protocol.master.decisions.verdict import IS_CHANGING, Verdict, verb
from quorate.protocol.recovery import Recovery
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.zone_master import ZoneMaster


def judge_restart(zone: ZoneMaster, part: PartitionState, asked: Recovery) -> Verdict:
    """Return the row in a new term without the copy among its owners, or in which it is dropped.

    The others that are there and own must be a quorum: the copy may be the only one that is not
    healthy, but never the only one that is.
    """
    row, node = part.row, asked.node
    problem = _problem(zone, row, node)
    if problem:
        return Verdict(problem)
    if row.active is not None:
        return Verdict("a migration is running: wait for its end, or cancel it first")
    if zone.is_busy(row.partition):
        return Verdict(IS_CHANGING)
    others = [h for each in row.owners if each != node and (h := zone.nodes.holder(each))]
    names = [holder.node for holder in others]
    if not is_quorum(row, names, zone.nodes.dead_voters(row)):
        return Verdict(
            f"it may be the last healthy copy: the others that are there and own"
            f" ({', '.join(names) or 'none'}) are no quorum of {', '.join(row.voter_nodes)}: start"
            " agents that are away, or wait until copies have caught up"
        )
    if asked.erase:
        return _erase(zone, part, others, asked)
    is_primary = row.primary is None or row.primary.node == node
    primary = others[0] if is_primary else row.primary
    if primary is None or primary not in others:
        return Verdict("another primary is being elected: look again in a moment")
    after = ownership.activated(row, primary, frozenset((node,)))
    takes = f"{verb(asked.dry_run, 'serve', 'serves')} in a new term"
    sentence = f"{primary.node} {takes}, in which the copy on {node} promises and catches up anew"
    return Verdict(sentence=sentence, change=(after, Why(Cause.RESTARTED, (node, primary.node))))


def _problem(zone: ZoneMaster, row: PartitionRow, node: str) -> str:
    """Return why the copy of that node cannot be restarted, or ""."""
    held = next((voter for voter in row.voters if voter.node == node), None)
    if not node:
        return "no agent is named: name the one whose copy is to be restarted"
    if held is None:
        return (
            f"agent {node} has no copy of it that votes: name one of {', '.join(row.voter_nodes)}"
        )
    if zone.nodes.is_dead(held):
        return f"the copy of {node} is gone for good, and is made anew without that"
    if zone.nodes.voter_holder(held) is None:
        return f"agent {node} is away: its copies catch up when it is started"
    return ""


def _erase(
    zone: ZoneMaster, part: PartitionState, others: list[Holder], asked: Recovery
) -> Verdict:
    """Return the row with a migration that drops the copy; the zone's target brings it back.

    A primary hands its role over with it.
    """
    row, node = part.row, asked.node
    if row.sets:
        return Verdict(IS_CHANGING)  # until its first activation
    if not part.serves:
        return Verdict("no primary serves it, so its copies cannot be changed: look again later")
    kept = tuple(each for each in row.owners if each != node)
    hands_over = row.replicas[0] == node
    migration = Migration(
        f"{zone.record.name}/{row.partition}/{row.version + 1}{ERASURE}",
        MigrationKind.DROP,
        node,
        others[0] if hands_over else None,
        kept,
        tuple(voter for voter in row.voters if voter.node != node),
    )
    is_dropped = verb(asked.dry_run, "be dropped", "is dropped")
    role = f", after {others[0].node} has become primary" if hands_over else ""
    return Verdict(
        sentence=f"the copy on {node} {is_dropped}{role}, and made anew where the zone wants it;"
        f" until then {', '.join(kept)} have it alone",
        change=(ownership.started(row, migration), Why(Cause.STARTED, (MigrationKind.DROP,))),
    )
