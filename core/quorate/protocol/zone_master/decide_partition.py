"""Decide what to do next for one partition: losses, activation, the commit of a migration.

Source: Hazelcast "Avoid Data Loss on Migration", section 2; docs/protocol.md, sections 6 and 7.
Level-triggered and pure: `decide` looks at everything known of one partition and returns one new
row to write, or messages to send, or nothing. The caller calls it again after every event.

    active --CaughtUp--> [Freeze --Frozen-->] PreparedRow --Prepared--> commit: version + 1
       |  destination or primary left, refused, too long                         FAILED: version + 2
"""

from typing import NamedTuple

import msgspec

from quorate.facts.partition_row import (
    VOTERS_MAX,
    MigrationKind,
    PartitionRow,
    committed_row,
    is_quorum,
    quorum,
)
from quorate.facts.topology import Holder
from quorate.protocol.messages.master import Freeze, PreparedRow, TroubleKind
from quorate.protocol.messages.message import Message
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.partition_state import Nodes, PartitionState


class RowDecision(NamedTuple):
    """Nothing, or a row to write and the reason, or messages and the part that notes them."""

    row: PartitionRow | None = None
    why: Why | None = None
    part: PartitionState | None = None
    sends: tuple[tuple[str, Message], ...] = ()


NOTHING = RowDecision()
NO_OWNER = 99
"""Index of a voter that is no owner, behind every owner's."""
TRIED_MAX = VOTERS_MAX
"""So many of the latest primaries that did not serve are remembered."""
WAITING_TIMES = 24
"""How many times longer an activation may take that perhaps waits for copies that are away."""


def decide(
    part: PartitionState,
    nodes: Nodes,
    zone: str,
    master_term: int,
    settings: ProtocolSettings,
    now_ms: int,
) -> RowDecision:
    """Return the next thing to do for this partition."""
    row = part.row
    stores = {voter.node: voter.store for voter in row.voters}
    left = frozenset(node for node in row.owners if nodes.gone(node, stores[node]))
    if row.active is not None:
        return _decide_migration(part, nodes, zone, master_term, settings, now_ms, left)
    if _primary_lost(row, nodes):
        return _decide_primary(part, nodes, settings, now_ms, left, "the primary has left")
    primary = row.primary
    unseated = primary is not None and row.replicas[0] is None and primary.node not in left
    if primary is not None and unseated and nodes.holder(primary.node) == primary:
        return RowDecision(ownership.with_owner(row, primary.node), Why(Cause.PRIMARY_BACK))
    if not part.is_activation_over:
        return _decide_activation(part, nodes, settings, now_ms, left)
    if part.stuck:
        return _decide_stuck(part, nodes, settings, now_ms, left)
    if row.sets and part.has_served:
        return RowDecision(ownership.with_one_set(row), Why(Cause.ONE_SET))
    if left:
        return RowDecision(ownership.without_owners(row, left), _left(left))
    restarted = _restarted(part, nodes)
    if restarted:
        after = ownership.without_owners(row, restarted)
        return RowDecision(after, _left(restarted, Cause.NOT_COUNTED))
    for ready in part.ready:
        node = ready.node
        if node not in row.replicas and node in row.voter_nodes and nodes.holder(node) == ready:
            return RowDecision(ownership.with_owner(row, node), Why(Cause.OWNS_AGAIN, (node,)))
    return NOTHING


def _restarted(part: PartitionState, nodes: Nodes) -> frozenset[str]:
    """Return the owners that restarted before the primary counted them as owners.

    What was acknowledged in between they may not have.
    """
    return frozenset(
        each.node
        for each in part.uncounted
        if each.incarnation > 0
        and each.node != part.row.replicas[0]
        and nodes.holder(each.node) not in (each, None)
    )


def _primary_lost(row: PartitionRow, nodes: Nodes) -> bool:
    """Return whether the primary's incarnation has left or was followed by another."""
    primary = row.primary
    if primary is None or nodes.gone(primary.node, primary.store):
        return True
    return nodes.holder(primary.node) not in (primary, None)


def _is_same(nodes: Nodes, row: PartitionRow, node: str) -> bool:
    """Return whether `node` is online with the store that votes in this row."""
    holder = nodes.holder(node)
    return holder is not None and any(
        voter.node == node and voter.store == holder.store for voter in row.voters
    )


def _candidates(part: PartitionState, nodes: Nodes) -> list[Holder]:
    """Return the online voters, best candidate first.

    First those that reach a quorum, that were not tried, that have reported what they hold, and
    that are not leaving, in this order. Then owners by replica index, then other voters by the
    freshest reported copy, then by name.
    """
    row = part.row
    online = _online_voters(nodes, row)

    def rank(holder: Holder) -> tuple[bool, bool, bool, bool, bool, int, int, int, str]:
        report = nodes.report(holder.node, row.partition)
        index = row.replicas.index(holder.node) if holder.node in row.replicas else NO_OWNER
        return (
            is_cut_off(nodes, row, holder.node),
            holder.node in part.tried,
            not nodes.reported(holder.node),
            nodes.leaving(holder.node),
            index == NO_OWNER,
            -report.last_term if report is not None and index == NO_OWNER else 0,
            -report.lwm if report is not None and index == NO_OWNER else 0,
            index,
            holder.node,
        )

    return sorted(online, key=rank)


def _online_voters(nodes: Nodes, row: PartitionRow) -> list[Holder]:
    online = [holder for holder in map(nodes.holder, row.voter_nodes) if holder is not None]
    return [holder for holder in online if _is_same(nodes, row, holder.node)]


def is_cut_off(nodes: Nodes, row: PartitionRow, node: str) -> bool:
    """Return whether `node`, by its and their reports, reaches no quorum of the online voters.

    Each agent reports only what it sees itself; an agent that one other cannot reach may be fine.
    """
    reached = [v for v in _online_voters(nodes, row) if nodes.reach_each_other(node, v.node)]
    return not is_quorum(row, [v.node for v in reached], nodes.dead_voters(row))


def _decide_primary(
    part: PartitionState,
    nodes: Nodes,
    settings: ProtocolSettings,
    now_ms: int,
    left: frozenset[str],
    why: str,
) -> RowDecision:
    """Put another voter, or a new incarnation of the same, at index 0 in a new term."""
    row = part.row
    if any(_is_awaited(part, nodes, voter.node, settings, now_ms) for voter in row.voters):
        return NOTHING
    candidates = _candidates(part, nodes)
    if not is_quorum(row, [each.node for each in candidates], nodes.dead_voters(row)):
        if left and row.owners:
            # A primary that froze for the migration that ends here serves again only in a new term.
            after = ownership.without_owners(row, left, new_term=part.freeze_ms >= 0)
            return RowDecision(after, _left(left, Cause.LEFT_NO_QUORUM))
        return NOTHING
    chosen = candidates[0]
    for candidate in candidates:
        if part.better and candidate.node == part.better:
            chosen = candidate
    taken_over = Why(Cause.TAKEN_OVER, (why, chosen.node))
    return RowDecision(ownership.activated(row, chosen, left), taken_over)


def _is_awaited(
    part: PartitionState, nodes: Nodes, node: str, settings: ProtocolSettings, now_ms: int
) -> bool:
    """Return whether an election waits for the voter's report, to find the freshest copy.

    A voter that is online and reports nothing, as with a hanging disk, is waited for no longer than
    a silent one. But a voter that may know a newer row is waited for.
    """
    if nodes.reported(node):
        return False
    asked_ms = nodes.asked_ms(node)
    late = 0 <= asked_ms <= now_ms - settings.failure_detection_ms
    return part.unheard or not late


def _decide_stuck(
    part: PartitionState,
    nodes: Nodes,
    settings: ProtocolSettings,
    now_ms: int,
    left: frozenset[str],
) -> RowDecision:
    """Decide about a primary that reports that it is stuck.

    After a freeze, or in a term that it cannot serve in, a new term is all that it needs. Without a
    quorum it would be stuck in a new term, too, so others are preferred. But in joint mode it may
    lack only the destination. Unless it is leaving, or the voters' reports say that it is cut off
    from them, the migration is given up first, and the primary gets the time to learn that: its
    term goes on, and writes that wait are acknowledged.
    """
    row, primary = part.row, part.row.primary
    if part.stuck == TroubleKind.NO_QUORUM and primary is not None:
        stays = not is_cut_off(nodes, row, primary.node) and not nodes.leaving(primary.node)
        if stays and row.active is not None:
            return _give_up(row, part, f"{primary.node} has no quorum during it")
        if stays and 0 <= part.progress_ms > now_ms - settings.lease_ms:
            return NOTHING
        if row.active is None:
            part = msgspec.structs.replace(part, tried=(*part.tried, primary.node)[-TRIED_MAX:])
    decision = _decide_primary(
        part, nodes, settings, now_ms, left, f"the primary is stuck: {part.stuck}"
    )
    return decision._replace(part=part) if decision.row is not None else decision


def may_wait_for_left(row: PartitionRow) -> bool:
    """Return whether a primary of this term may have to wait for copies that a reset left.

    The survivor itself waits for none in the term that the reset began.
    """
    reset = row.reset
    is_later = reset is not None and row.term != reset.term
    return reset is not None and is_later and any(link.needed for link in reset.links)


def needs_filling(part: PartitionState, nodes: Nodes) -> bool:
    """Return whether the online voters are a quorum only together with some that are filling.

    No other primary could serve before these have adopted, and a new term has them begin again.
    """
    filling = {node for node, _ in part.fills}
    others = [v.node for v in _online_voters(nodes, part.row) if v.node not in filling]
    return bool(filling) and not is_quorum(part.row, others, nodes.dead_voters(part.row))


def _decide_activation(
    part: PartitionState,
    nodes: Nodes,
    settings: ProtocolSettings,
    now_ms: int,
    left: frozenset[str],
) -> RowDecision:
    assert part.row.primary is not None
    node = part.row.primary.node
    is_left_away = may_wait_for_left(part.row) and any(
        nodes.gone(voter.node, voter.store) for voter in part.row.left_by_reset
    )
    times = WAITING_TIMES if is_left_away else min(1 + len(part.tried), 6)
    bound = settings.activation_bound_ms * times
    if needs_filling(part, nodes):
        bound = max(bound, settings.migration_stall_ms)
    if part.better and part.better not in part.row.voter_nodes:
        part = msgspec.structs.replace(part, better="")  # recovery/reset.py narrows to it
    still_ms = now_ms - max(part.progress_ms, part.since_ms)
    if not part.better and not part.stuck and still_ms < bound:
        return NOTHING
    tried = (*part.tried, node)[-TRIED_MAX:]
    if len(set(tried)) >= len(_candidates(part, nodes)):
        tried = ()
    part = msgspec.structs.replace(part, tried=tried)
    why = f"{node} did not activate"
    decision = _decide_primary(part, nodes, settings, now_ms, left, why)
    return decision._replace(part=part) if decision.row is not None else decision


def _decide_migration(
    part: PartitionState,
    nodes: Nodes,
    zone: str,
    master_term: int,
    settings: ProtocolSettings,
    now_ms: int,
    left: frozenset[str],
) -> RowDecision:
    row = part.row
    migration = row.active
    assert migration is not None
    destination, primary = migration.destination, row.primary
    if not part.resolved:
        return _resolve(part, nodes)
    # A prepared row is worth nothing without its destination's store, if the write must be
    # repeated.
    if part.prepared and (
        destination is None or destination.node not in nodes.dead_voters(committed_row(row))
    ):
        return RowDecision(committed_row(row), Why(Cause.COMMITTED, (migration.migration_id,)))
    if primary is None or _primary_lost(row, nodes):
        return _decide_primary(part, nodes, settings, now_ms, left, "the primary has left")
    changes_primary = migration.replicas[0] != primary.node
    refused = part.prepared is False
    if destination is not None and nodes.holder(destination.node) not in (destination, None):
        return _give_up(row, part, f"{destination.node} is a new process")
    if destination is not None and nodes.gone(destination.node, destination.store):
        return _give_up(row, part, f"{destination.node} left")
    if refused:
        return _give_up(row, part, "the destination refused the prepared row")
    for since, what in ((part.freeze_ms, "frozen"), (part.prepare_ms, "prepared")):
        if since >= 0 and now_ms - since > settings.migration_bound_ms:
            return _give_up(row, part, f"{what} for too long")
    activating_ms = 0 if part.is_activation_over else now_ms - part.since_ms
    if activating_ms > settings.activation_bound_ms * 2:
        return _decide_primary(part, nodes, settings, now_ms, left, "the primary did not activate")
    if part.stuck and not part.frozen:
        return _decide_stuck(part, nodes, settings, now_ms, left)
    if part.unwanted and not part.caught_up and part.prepare_ms < 0:
        # Later, going on is cheaper than going back: the copy is complete, or clients wait.
        unwanted = Why(Cause.UNWANTED, (migration.migration_id,))
        return RowDecision(ownership.failed(row, new_term=part.freeze_ms >= 0), unwanted)
    dead = nodes.dead_voters(row)
    if migration.kind is MigrationKind.DROP and migration.source not in dead:
        left |= {*dead}  # owners or not: without them the leaver is not one copy too many
    staying = {voter.node for voter in migration.voters}
    leavers = {node for node in row.voter_nodes if node not in staying}
    others = left - leavers - {migration.source}
    if others:
        after = ownership.without_owners(row, left, new_term=part.freeze_ms >= 0)
        return RowDecision(after, _left(left))
    if not part.caught_up:
        still_ms = now_ms - max(part.progress_ms, part.since_ms)
        if part.is_activation_over and still_ms > settings.migration_stall_ms:
            return _give_up(row, part, f"no progress for {still_ms // 1000} s")
        return NOTHING
    if not is_known(part, nodes):
        if now_ms - part.caught_up_ms > settings.migration_stall_ms:
            why = f"a quorum of the voters has not stored row {row.version}"
            return _give_up(row, part, why)
        return NOTHING
    if changes_primary and not part.frozen:
        if part.freeze_sent_ms >= 0 and now_ms - part.freeze_sent_ms < settings.retry_ms:
            return NOTHING
        noted = msgspec.structs.replace(
            part,
            freeze_ms=part.freeze_ms if part.freeze_ms >= 0 else now_ms,
            freeze_sent_ms=now_ms,
        )
        freeze = Freeze(master_term, zone, row.partition, migration.migration_id, row.term)
        return RowDecision(part=noted, sends=((primary.node, freeze),))
    if destination is None:
        return RowDecision(committed_row(row), Why(Cause.COMMITTED, (migration.migration_id,)))
    if part.prepare_sent_ms >= 0 and now_ms - part.prepare_sent_ms < settings.retry_ms:
        return NOTHING
    noted = msgspec.structs.replace(
        part,
        prepare_ms=part.prepare_ms if part.prepare_ms >= 0 else now_ms,
        prepare_sent_ms=now_ms,
    )
    prepared = PreparedRow(master_term, zone, migration.migration_id, committed_row(row))
    return RowDecision(part=noted, sends=((destination.node, prepared),))


def is_known(part: PartitionState, nodes: Nodes) -> bool:
    """Return whether a quorum of the voters has this migration's row durably, or no voter changes.

    Only then is it committed. So a quorum of the voters of any row knows of every later committed
    change of the voters, even if the metastore is lost.
    """
    row, active = part.row, part.row.active
    assert active is not None
    if set(active.voters) == set(row.voters):
        return True
    dead = nodes.dead_voters(row)
    count = sum(voter.node not in dead for voter in part.stored)
    return count >= quorum(len(row.voters), len(dead))


def _left(nodes: frozenset[str], cause: Cause = Cause.LEFT) -> Why:
    return Why(cause, (", ".join(sorted(nodes)),))


def _give_up(row: PartitionRow, part: PartitionState, why: str) -> RowDecision:
    assert row.active is not None
    given_up = Why(Cause.GIVEN_UP, (row.active.migration_id, why))
    return RowDecision(ownership.failed(row, new_term=part.freeze_ms >= 0), given_up)


def _resolve(part: PartitionState, nodes: Nodes) -> RowDecision:
    """Decide about a migration that another master started.

    It is committed if its destination stored the prepared row, else rolled back.
    """
    row = part.row
    migration = row.active
    assert migration is not None
    if not _has_told(row, nodes):
        return NOTHING
    if is_prepared(row, nodes):
        noted = msgspec.structs.replace(part, resolved=True, prepared=True)
        found = Why(Cause.FOUND_PREPARED, (migration.migration_id,))
        return RowDecision(committed_row(row), found, part=noted)
    rolled_back = Why(Cause.ROLLED_BACK, (migration.migration_id,))
    return RowDecision(ownership.failed(row, new_term=True), rolled_back)


def may_be_replaced(part: PartitionState, nodes: Nodes) -> bool:
    """Return whether a row without a quorum may be replaced, whatever its migration was to do.

    A new master decides nothing about a migration before a quorum of the voters has told its rows.
    Where there is none any more, it suffices that the migration would be rolled back.
    """
    if not part.unheard or part.row.active is None:
        return part.resolved and not part.prepared
    return _has_told(part.row, nodes) and not is_prepared(part.row, nodes)


def _has_told(row: PartitionRow, nodes: Nodes) -> bool:
    """Return whether all who take part in the row's migration have told what they have, or left."""
    migration = row.active
    assert migration is not None
    primary, destination = row.primary, migration.destination
    asked = [primary.node if primary else None, destination.node if destination else None]
    return all(nodes.reported(node) for node in (*asked, migration.source) if node is not None)


def is_prepared(row: PartitionRow, nodes: Nodes) -> bool:
    """Return whether the destination is there, and has stored the row after the migration."""
    migration = row.active
    assert migration is not None
    destination = migration.destination
    if destination is None or nodes.holder(destination.node) is None:
        return False
    report = nodes.report(destination.node, row.partition)
    return (
        report is not None
        and report.prepared == committed_row(row)
        and report.prepared_migration == migration.migration_id
    )
