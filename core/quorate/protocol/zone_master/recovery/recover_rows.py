"""Rebuild a partition's row, after its loss, from what agents durably know of it.

Pure: it takes all reports, and returns one row, or what is missing for one. The row is safe,
because:

1. A change of the voters is committed only after a quorum of the voters before it has the row of
   that migration durably (`decide_partition.is_known`). So if a quorum of the voters of the newest
   reported row knows no such change, there was none, except for that row's own migration.
2. The voters of the new row are those of the newest one. If that row's own migration may have been
   committed, they are those before and after it. The row then carries both sets (`sets`) until its
   first activation, which needs a quorum of each. So it includes a member of each quorum that can
   have acknowledged a write, promised a term or granted a lease: it finds every acknowledged write,
   and ends every other primary. A row that carries both sets already, because it was rebuilt before
   and lost again, is rebuilt with them.
3. The row's own migration was not committed, and cannot be any more, if its destination has
   reported and has prepared nothing, or if the primary that it would replace has reported that it
   has not frozen. Then the newcomer does not vote, as it may lack what was answered, and it is not
   waited for.
4. Version and term are higher than all reported ones by more than any agent can have missed. They
   are also higher than those of a row that was rebuilt before and is lost again, which may be known
   only to an agent that is away. A quorum that reported to an earlier master obeys no other master
   with its number or a lower one. So a later rebuild has a higher mastership number, and version
   and term are at least that number times the gap.
5. A person may have reset the partition to a store without a quorum, and what followed is known to
   that store and later voters alone. So every online agent is waited for. One that is offline or
   refuses the zone is not: protocol.md says to have the survivor of a reset online first.

Source: docs/protocol.md, section 7.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from quorate.facts.partition_row import (
    VOTERS_MAX,
    PartitionRow,
    check_row,
    quorum,
    reset_without,
)
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages.master import CopyReport
from quorate.protocol.zone_master import ownership

RECOVERY_GAP = 1 << 20
"""The distance from the highest reported version or term to that of the rebuilt row. An agent that
is away may know newer versions than those reported, but it cannot alone have seen this many changes
of one partition. A row that is rebuilt under mastership N has at least N times this."""


class Told(NamedTuple):
    """One agent that has reported everything. `report`: on the partition; None for nothing."""

    holder: Holder
    report: CopyReport | None


class LastKnown(NamedTuple):
    """The newest row that was told, of which no quorum is left, and the row to go on from.

    That one is as short of a quorum: it only lets a person decide what becomes of the partition.
    """

    row: PartitionRow
    next: PartitionRow


class Waiting(NamedTuple):
    """The reason why there is no row yet, and the agents whose report can help, if any.

    `last`: only a person can help, because no quorum is left.
    """

    nodes: tuple[str, ...]
    why: str
    last: LastKnown | None = None


def recovered_row(
    partition: int,
    told: Mapping[str, Told],
    dead: Sequence[Voter],
    master_term: int,
    below: int = 0,
    silent: Sequence[str] = (),
) -> PartitionRow | Waiting:
    """Return the row from which the partition goes on, or what it waits for.

    - `told`: the online agents that have reported, by name.
    - `dead`: voters whose stores are gone for good, because their nodes greeted with another one.
    - `master_term`: the number of the mastership that the agents reported to.
    - `below`: a version that was seen elsewhere.
    - `silent`: the online agents that have not reported, and will.
    """
    reports = [each.report for each in told.values() if each.report is not None]
    rows = [report.row for report in reports if report.row is not None]
    if not rows:
        return Waiting((), "no online agent knows its row")
    newest = max(rows, key=lambda row: row.version)
    for node, each in sorted(told.items()):
        known = each.report
        if known is not None and known.version > newest.version:
            return Waiting((), f"{node} knows of row {known.version}, which no online agent has")
    both = _both_sets(newest, told)
    missing = set(silent)
    gone: set[str] = set()
    for voters in (newest.voters, *both):
        heard = [voter for voter in voters if _has_told(voter, told)]
        lost = [voter for voter in voters if voter in dead]
        if len(heard) < quorum(len(voters), len(lost)):
            away = {v.node for v in voters if v not in heard and v not in lost}
            missing |= away
            if not away:
                gone |= {voter.node for voter in lost}
    left = f"the stores of {', '.join(sorted(gone))} are gone for good, which leaves no quorum"
    if missing:
        nodes = tuple(sorted(missing))
        first = f"{left}; first " if gone else ""
        return Waiting(nodes, f"{first}waiting for the reports of {', '.join(nodes)}")
    version = max(_highest(newest, reports, below), (master_term - 1) * RECOVERY_GAP)
    voters = _all_together(newest, both, dead)
    row = _above(version + RECOVERY_GAP, newest, voters, both, told)
    return Waiting((), left, LastKnown(newest, row)) if gone else row


def _all_together(
    newest: PartitionRow, both: tuple[tuple[Voter, ...], ...], dead: Sequence[Voter]
) -> tuple[Voter, ...]:
    """Return the voters of both sets, or those that are left, if too few are left for a quorum.

    A quorum of each set finds what was answered before; a quorum of the voters left has what will
    be answered. Both sets together may be nine, one too many for a row. Then those whose stores are
    gone do not vote. If there is none, the one that was to leave does not, and the quorums of its
    set do without it. Two quorums of a set of eight have two voters in common, so one beside it.
    """
    voters = tuple(dict.fromkeys(voter for each in (newest.voters, *both) for voter in each))
    left = tuple(voter for voter in voters if voter not in dead)
    if len(voters) > VOTERS_MAX:
        if len(left) == len(voters):
            return both[-1]
        return left or newest.voters
    if not both or not left or len(left) >= quorum(len(voters), len(voters) - len(left)):
        return voters
    return left


def _both_sets(newest: PartitionRow, told: Mapping[str, Told]) -> tuple[tuple[Voter, ...], ...]:
    """Return the voters before and after a migration that may have been committed.

    () if both are the same. Without such a migration, the row's own `sets`.
    """
    active = newest.active
    if active is None or _is_uncommitted(newest, told):
        return newest.sets
    before, after = newest.voters, active.voters
    return (before, after) if set(before) != set(after) else ()


def _is_uncommitted(row: PartitionRow, told: Mapping[str, Told]) -> bool:
    """Return whether the row's migration was not committed and cannot be any more.

    That is so if its destination has prepared nothing, or the primary that it replaces has not
    frozen. No master commits before that, and an agent that has reported obeys no earlier master.
    """
    migration = row.active
    assert migration is not None
    primary = row.primary
    is_followed = primary is not None and migration.replicas[0] != primary.node
    if primary is not None and is_followed and _has_not_frozen(primary, row.term, told):
        return True
    destination = migration.destination
    if destination is None or not _has_told(destination, told):
        return False
    report = told[destination.node].report
    return report is None or report.prepared is None


def _has_not_frozen(primary: Holder, term: int, told: Mapping[str, Told]) -> bool:
    """Return whether this very process has reported that it can still serve in this term.

    A later process does not know whether it froze.
    """
    agent = told.get(primary.node)
    if agent is None or agent.holder != primary or agent.report is None:
        return False
    return agent.report.unfrozen == term


def _has_told(voter: Voter | Holder, told: Mapping[str, Told]) -> bool:
    agent = told.get(voter.node)
    return agent is not None and agent.holder.store == voter.store


def _highest(newest: PartitionRow, reports: Sequence[CopyReport], below: int) -> int:
    versions = [newest.version, newest.term, below]
    for report in reports:
        prepared = report.prepared.version if report.prepared is not None else 0
        versions += [report.version, report.promised, report.last_term, prepared]
    return max(versions)


def _above(
    version: int,
    newest: PartitionRow,
    voters: tuple[Voter, ...],
    both: tuple[tuple[Voter, ...], ...],
    told: Mapping[str, Told],
) -> PartitionRow:
    here = [told[voter.node] for voter in voters if _has_told(voter, told)]
    left = frozenset(set(newest.owners) - {each.holder.node for each in here})

    def rank(each: Told) -> tuple[bool, int, int, str]:
        report = each.report
        last, lwm = (report.last_term, report.lwm) if report is not None else (0, 0)
        return each.holder != newest.primary, -last, -lwm, each.holder.node

    before = msgspec.structs.replace(
        newest,
        version=version,
        voters=voters,
        active=None,
        sets=both,
        reset=reset_without(newest.reset, {voter.node for voter in voters}),
    )
    if not here:  # every store is gone for good, and the partition can only begin anew
        row = msgspec.structs.replace(before, term=version)
        check_row(row)
        return row
    return ownership.activated(before, min(here, key=rank).holder, left)
