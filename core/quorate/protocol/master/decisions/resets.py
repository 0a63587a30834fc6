"""Resets that a person decides: partitions without a quorum narrow to one copy, in either mode.

What follows a reset is the same as for those of HIGH_AVAILABILITY (reset.py). docs/protocol.md,
section 7, "Recovery by a person".
"""

from collections.abc import Sequence

from quorate.facts.partition_row import PartitionRow, is_quorum
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.protocol.master.decisions.verdict import IS_CHANGING, Verdict, verb
from quorate.protocol.recovery import Recovery
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.decide_partition import (
    is_prepared,
    may_be_replaced,
    may_wait_for_left,
)
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.recovery.reset import Resets
from quorate.protocol.zone_master.view.availability import voters_online
from quorate.protocol.zone_master.zone_master import ZoneMaster

Position = tuple[int, int]
"""Last term and LWM of a copy, as its agent last reported them."""


class PersonReset:
    """Judges one reset that a person asks for, partition by partition."""

    def __init__(self, zone: ZoneMaster, resets: Resets, asked: Recovery, now: Now) -> None:
        self._zone = zone
        self._resets = resets
        self._to = asked.node
        self._dry_run = asked.dry_run
        self._now = now

    def judge(self, part: PartitionState) -> Verdict:
        """Return the row in which one copy alone votes, and what is lost with the others."""
        complete = self._complete_destination(part)
        waits = self._why_not_yet(part, complete)
        if waits:
            return Verdict(waits)
        row, nodes = part.row, self._zone.nodes
        here = voters_online(row, nodes)
        has_quorum = is_quorum(row, here, nodes.dead_voters(row))
        if has_quorum and not self._waits(part):
            return Verdict(
                f"a quorum of its voters is there ({', '.join(sorted(here))} of"
                f" {', '.join(row.voter_nodes)}), so it needs no reset: `quorate status` says what"
                " it waits for"
            )
        copies = [*row.voters, *row.left_by_reset, *complete]
        there = [copy for copy in copies if nodes.voter_holder(copy) is not None]
        problem = self._wrong_node(copies) if self._to else _no_copy(row, there, nodes.is_lost(row))
        if problem:
            return Verdict(problem)
        survivor = self._survivor(part, there)
        if survivor is None:
            return Verdict("a report of its copies is awaited: try again in a few seconds")
        sentence = "; ".join([self._copies(row), self._choice(part, survivor)])
        lost = self._lost(part, survivor, there)
        after, why = self._resets.change(part, survivor)
        if has_quorum:
            after = ownership.without_links(after)
        return Verdict(sentence=f"{sentence}: {lost}", change=(after, why))

    def _waits(self, part: PartitionState) -> bool:
        """Return whether its primary waits for copies that a reset left, which may have more."""
        return not part.serves and may_wait_for_left(part.row)

    def _why_not_yet(self, part: PartitionState, complete: Sequence[Voter]) -> str:
        zone, nodes, row = self._zone, self._zone.nodes, part.row
        if self._resets.is_new(self._now):
            return "the operator has only begun to lead: try again in a few seconds"
        if zone.is_changing(row.partition):
            return IS_CHANGING
        prepared = [copy.node for copy in complete]
        if prepared and self._to not in prepared:
            return (
                f"{prepared[0]} has everything, and a migration was about to make it a voter: reset"
                " to that one, or stop it to reset to another"
            )
        if not prepared and not may_be_replaced(part, nodes):
            return "it is being found out whether its migration was committed: try again"
        known = {v.node for v in row.voters if zone.nodes.gone(v.node, v.store)}
        known |= voters_online(row, zone.nodes)
        unknown = ", ".join(node for node in row.voter_nodes if node not in known)
        if unknown:
            return f"it is not known yet whether {unknown} is there: try again in a few seconds"
        keeping = [copy.node for copy in (*row.voters, *row.left_by_reset)]
        keeping += [] if row.destination is None else [row.destination.node]
        if old := [node for node in keeping if nodes.is_too_old_for_resets(node)]:
            return f"{', '.join(old)} would delete what the reset leaves: upgrade them first"
        lost = [voter for voter in row.voters if nodes.gone(voter.node, voter.store)]
        if may_serve_ms := self._resets.may_serve_ms(lost, self._now):
            return (
                f"agents that left may be cut off and serve for {may_serve_ms / 1000:.0f} s more"
                " (isolationTimeoutSeconds of the zone): try again then"
            )
        return ""

    def _complete_destination(self, part: PartitionState) -> list[Voter]:
        """Return the destination of a migration that a new master found, if it is complete.

        Without a quorum of the voters nobody can tell whether the migration was committed.
        """
        destination = part.row.destination
        if destination is None or not part.unheard or not is_prepared(part.row, self._zone.nodes):
            return []
        return [Voter(destination.node, destination.store)]

    def _wrong_node(self, copies: Sequence[Voter]) -> str:
        """Return why the copy of the named node cannot be the survivor, and what to name."""
        node, nodes = self._to, self._zone.nodes
        if not nodes.is_registered(node):
            known = ", ".join(sorted(nodes.registered()))
            return f"there is no agent {node}: name one of {known}"
        held = next((copy for copy in copies if copy.node == node), None)
        if held is None:
            holders = ", ".join(copy.node for copy in copies)
            return f"agent {node} holds no copy of it: name one of {holders}"
        if nodes.is_dead(held):
            return f"the copy of {node} is gone for good: it has another store now; name another"
        refusal = nodes.refusal(node)
        if refusal is not None:
            return f"agent {node} refuses the zone: {refusal.reason}"
        if nodes.voter_holder(held) is None:
            return f"the copy of {node} is not there: start that agent, or name another"
        return ""

    def _survivor(self, part: PartitionState, there: Sequence[Voter]) -> Holder | None:
        """Return the named copy, else the primary's, else the freshest of the voters.

        Copies that an earlier reset left come last. None while a report is waited for.
        """
        row, nodes = part.row, self._zone.nodes
        if self._to:
            return next(nodes.voter_holder(copy) for copy in there if copy.node == self._to)
        if self._primary_is_there(part):
            return row.primary
        voters = [copy for copy in there if copy in row.voters]
        return self._resets.freshest(part, voters or there, self._now)

    def _primary_is_there(self, part: PartitionState) -> bool:
        """Return whether the process that acknowledged the last writes is there."""
        primary = part.row.primary
        has_all = part.has_served and primary is not None
        return has_all and primary is not None and self._zone.nodes.holder(primary.node) == primary

    def _copies(self, row: PartitionRow) -> str:
        """Return the voters, and what an earlier reset left, each with what became of it."""
        told = [f"{copy.node} {self._fate(copy)}" for copy in row.voters]
        told += [f"{copy.node}, left by a reset, {self._fate(copy)}" for copy in row.left_by_reset]
        return ", ".join(told)

    def _fate(self, copy: Voter) -> str:
        nodes = self._zone.nodes
        if nodes.voter_holder(copy) is not None:
            return "is there"
        if nodes.is_dead(copy):
            return "is gone for good"
        if nodes.refusal(copy.node) is not None:
            return "refuses the zone"
        if not nodes.is_registered(copy.node):
            return "is registered no more"
        return f"left {nodes.unchanged_ms(copy, self._now) // 1000} s ago"

    def _choice(self, part: PartitionState, survivor: Holder) -> str:
        row, node = part.row, survivor.node
        role = "an owner" if node in row.owners else "no owner"
        if row.primary is not None and row.primary.node == node:
            role = "its primary"
        narrows = verb(self._dry_run, "narrow", "narrows")
        return f"it {narrows} to {node} ({role}, {_told(self._position(node, row))})"

    def _lost(self, part: PartitionState, survivor: Holder, there: Sequence[Voter]) -> str:
        """Return what may be lost: the survivor takes over what the others that are there hold."""
        row = part.row
        asked = {survivor.node, *(copy.node for copy in there)}
        if row.primary is not None and row.primary.node in asked and self._primary_is_there(part):
            return "the primary is there, and has every acknowledged write"
        if self._resets.has_all(part, survivor):
            return "it was an owner, so it has every acknowledged write"
        has = max(self._position(node, row) or (0, 0) for node in sorted(asked))
        others = [copy.node for copy in (*row.voters, *row.left_by_reset)]
        others = [node for node in others if node not in asked]
        known = [f"{node} {_told(self._position(node, row))}" for node in others]
        ahead = [at for node in others if (at := self._position(node, row)) and at > has]
        missing = max((lwm - has[1] for _, lwm in ahead), default=0)
        if ahead:
            loss = f"at least {max(missing, 1)} updates are lost, and"
        else:
            loss = "no update is known that it lacks, but"
        return (
            f"of the others: {', '.join(known)}; {loss} every write that was acknowledged without"
            " it after these reports, which can be a minute old, is lost"
        )

    def _position(self, node: str, row: PartitionRow) -> Position | None:
        report = self._zone.nodes.report(node, row.partition)
        return (report.last_term, report.lwm) if report is not None else None


def _told(position: Position | None) -> str:
    if position is None:
        return "position not known"
    return f"at term {position[0]}, counter {position[1]}"


def _no_copy(row: PartitionRow, there: Sequence[Voter], is_lost: bool) -> str:
    """Return why there is no copy to narrow to, or ""."""
    if there:
        return ""
    if is_lost and not row.left_by_reset:
        return "the stores of all its voters are gone for good: it can be reopened without data"
    holders = ", ".join(copy.node for copy in (*row.voters, *row.left_by_reset))
    return f"none of its copies is there: start one of {holders}"
