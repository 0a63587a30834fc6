"""The next step of a primary's role: from its first Fence to serving, and through a migration.

It is level-triggered.  `step` looks at the whole role and does what is possible.  It is called
after every event that may matter, and through `tick` again when an answer is late.  Source:
docs/protocol.md, sections 5 and 6.
"""

from quorate.facts.lineage import Lineage
from quorate.facts.time import Now
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import (
    FrozenFor,
    GatherPlan,
    JointMode,
    Peer,
    Retry,
    Stage,
)
from quorate.protocol.copies.supply import keys_to_ask
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.master import (
    Activated,
    ActivationBlocked,
    CaughtUp,
    CopyReady,
    Frozen,
    Trouble,
    TroubleKind,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Fence, Sync
from quorate.protocol.messages.transfer import FetchKeys, FetchUpdates, KeyRows
from quorate.protocol.storage import Row
from quorate.protocol.transactions import parts

TROUBLE_AFTER_MS = 2000
READY_AGAIN_MAX_MS = 8000
RESET_GATHER_TIMES = 5
"""After a reset, others give what they hold within this many times `reset_question_ms`."""
JOINT_LAG_MAX = 1000
"""A destination at most this many updates behind may be waited for in joint mode."""


def step(zone: ZoneCopies, role: Primary, now: Now) -> None:
    """Do everything the role can do now."""
    if role.handed_over and role.stage is Stage.FENCING:
        _take_over(zone, role)
    _fence(zone, role, now)
    if role.stage <= Stage.GATHERING:
        # Checked each time: a voter's new process must answer again, so its report may be missing.
        is_heard = role.has_quorum_promised() and not _awaits_others(zone, role, now)
        role.enter(Stage.GATHERING if is_heard else Stage.FENCING)
    if role.stage is Stage.GATHERING:
        _gather(zone, role, now)
    if not role.persisted:
        return
    _sync(zone, role, now)
    if role.stage is Stage.ADOPTING and role.has_quorum_adopted():
        role.enter(Stage.WAITING)
    if role.stage is Stage.WAITING and (role.handed_over or role.are_leases_over(now.boot_ms)):
        role.enter(Stage.SERVING)
        zone.renew_lease(role)
        zone.survey(role.copy)
        parts.load(role, now.boot_ms)
    if role.stage is Stage.SERVING:
        _report_activated(zone, role)
        _migrate(zone, role, now)
        _do_without_away(zone, role)
        # A row, or the loss of a store, may have changed the quorum, and no other event may follow.
        zone.advance(role)
        _report_ready(zone, role, now)


def _begin_try(zone: ZoneCopies, role: Primary, what: Retry, now: Now, node: str = "") -> bool:
    """Note that `what` is sent now, unless it was sent within the retry interval.

    Return whether it is to be sent.
    """
    if now.boot_ms - role.retries.sent_ms(what, node) < zone.settings.retry_ms:
        return False
    role.retries.note_sent(what, now.boot_ms, node)
    return True


def _to_master(zone: ZoneCopies, role: Primary, what: Retry, message: Message, now: Now) -> None:
    if _begin_try(zone, role, what, now):
        zone.out.send_durable(MASTER, message)


def _fence(zone: ZoneCopies, role: Primary, now: Now) -> None:
    fence = Fence(zone.uid, role.copy.partition, role.term, role.holder)
    for node, peer in role.peers.items():
        if peer.promised or zone.stores.get(node) != role.stores.get(node):
            continue
        if now.boot_ms - peer.asked_ms >= zone.settings.retry_ms or peer.asked_ms < 0:
            peer.asked_ms = now.boot_ms
            zone.out.send(node, fence)
            lineage = None if role.persisted else role.lineage
            peer.told = lineage is not None
            if lineage is not None:  # after a hand-over: receivers need one write for both
                _send_sync(zone, role, lineage, node)


def _awaits_others(zone: ZoneCopies, role: Primary, now: Now) -> bool:
    """Return whether copies that a reset left may still answer what they hold.

    They are no voters, so a silent one is waited for only so long, unless all restarted and the
    last updates may be with it.  With PRIMARY_SYNC all voters are waited for like that: the former
    primary alone may hold what was answered.
    """
    if role.awaited():
        return True
    if now.boot_ms - role.began_ms >= zone.settings.reset_question_ms:
        return False
    asked = role.peers.items() if role.answers_alone else role.others()
    return any(
        not peer.promised
        and zone.stores.get(node) == role.stores.get(node)
        and _is_there(zone, node, now)
        for node, peer in asked
    )


def _is_there(zone: ZoneCopies, node: str, now: Now) -> bool:
    """Return whether `node` can answer, as far as the master or its own heartbeats tell."""
    return node in zone.online or zone.leases.held_until(node) > now.boot_ms


def _forget_silent(zone: ZoneCopies, role: Primary, now: Now) -> None:
    """Do without what the copies that a reset left hold, if they do not give it."""
    is_unproven = role.is_unproven
    late_ms = role.began_ms + RESET_GATHER_TIMES * zone.settings.reset_question_ms
    is_late = now.boot_ms >= late_ms and not is_unproven
    for node, peer in role.others():
        if peer.answer is not None and (is_late or not _is_there(zone, node, now)):
            peer.answer = None
            peer.promised = peer.promised and not is_unproven  # it is asked again: it may be needed
            role.gathering.is_blocked = False  # perhaps by this very answer


def _gather(zone: ZoneCopies, role: Primary, now: Now) -> None:
    _forget_silent(zone, role, now)
    if role.awaited():
        return
    gathering, plan = role.gathering, role.gather()
    before, gathering.plan = gathering.plan, plan
    if before is not None and before.lineage.last_term != plan.lineage.last_term:
        gathering.rows.clear()  # rows of a history that is no longer the chosen one
    copy = role.copy
    if plan.undo is None or gathering.is_blocked:
        message = ActivationBlocked(zone.uid, copy.partition, role.term, plan.supplier)
        _to_master(zone, role, Retry.BLOCKED, message, now)
        return
    keys = sorted(plan.undo - gathering.rows.keys())
    if keys and _begin_try(zone, role, Retry.KEYS, now):
        ask = FetchKeys(zone.uid, copy.partition, role.term, keys_to_ask(keys))
        zone.out.send(plan.supplier, ask)
    for node, ranges in plan.wanted.items():
        if _begin_try(zone, role, Retry.UPDATES, now, node):
            wanted = FetchUpdates(zone.uid, copy.partition, role.term, tuple(ranges[:200]))
            zone.out.send(node, wanted)
    if not keys and not plan.wanted:
        _adopt_own(zone, role, plan)


def _take_over(zone: ZoneCopies, role: Primary) -> None:
    """After a hand-over, adopt at once: nothing is to be gathered.

    The old primary froze when we held everything that it had given out, and no term lies between
    its term and ours.  So no copy holds an update that we lack, or one to be undone.  A quorum must
    still promise and adopt.
    """
    copy = role.copy
    if not copy.held():
        _adopt_own(zone, role, GatherPlan(copy.lineage, copy.lwm, copy.lwm, set(), "", {}))


def _adopt_own(zone: ZoneCopies, role: Primary, plan: GatherPlan) -> None:
    others = role.others()
    # A copy that promised us grants no lease any more; an earlier one of its may still run.
    role.lease_until = max([role.lease_until, *(peer.lease_until for _, peer in others)])
    role.adopt_own(plan)
    role.enter(Stage.ADOPTING)
    if role.row.left_by_reset:
        role.follow(role.row)  # they are asked no more
    zone.give_up(role.take_undone(plan.prefix))
    zone.touch(role.copy)
    zone.adopting.append(role)


def updates_came(zone: ZoneCopies, role: Primary, node: str, reaches_from: int) -> None:
    """Continue after an answer to our FetchUpdates, whose updates are held already."""
    plan = role.gathering.plan
    if role.stage is not Stage.GATHERING or plan is None:
        return
    before = plan.wanted.get(node, [])
    role.retries.note_answered(Retry.UPDATES, node)
    if before and before[0][0] <= reaches_from:
        role.gathering.is_blocked = before == role.gather().wanted.get(node, [])
    step(zone, role, zone.now)


def keys_came(zone: ZoneCopies, role: Primary, node: str, answer: KeyRows) -> None:
    """Take in the rows that replace what our own divergent updates touched."""
    plan = role.gathering.plan
    if role.stage is not Stage.GATHERING or plan is None or node != plan.supplier:
        return
    rows = role.gathering.rows
    count = len(rows)
    for key, counter, term, expires_at, value in answer.rows:
        rows[key] = Row(counter, term, expires_at, value) if counter else None
    if len(rows) > count:
        role.retries.note_answered(Retry.KEYS)
    step(zone, role, zone.now)


def _sync(zone: ZoneCopies, role: Primary, now: Now) -> None:
    lineage = role.lineage
    if lineage is None:
        return
    for node, peer in role.peers.items():
        if not peer.promised or peer.adopted:
            continue
        if now.boot_ms - peer.asked_ms < zone.settings.retry_ms and peer.asked_ms >= 0:
            continue
        peer.asked_ms = now.boot_ms
        _send_sync(zone, role, lineage, node)


def _send_sync(zone: ZoneCopies, role: Primary, lineage: Lineage, node: str) -> None:
    copy, reset = role.copy, role.row.reset
    reset_term = reset.term if reset is not None else 0
    sync = Sync(zone.uid, copy.partition, role.term, lineage, copy.lwm, reset_term)
    zone.out.send(node, sync)


def _report_activated(zone: ZoneCopies, role: Primary) -> None:
    if not role.has_reported:
        role.has_reported = True
        message = Activated(
            zone.uid, role.copy.partition, role.term, role.copy.lwm, owners_behind(role)
        )
        zone.out.send_durable(MASTER, message)


def owners_behind(role: Primary) -> tuple[str, ...]:
    """Return the owners that may lack acknowledged updates; CopyReady is sent when they do not.

    From now on nothing is acknowledged without them.  Only with FULL_SYNC; else none.
    """
    if not role.is_full_sync or role.stage is not Stage.SERVING:
        return ()
    behind = [node for node in role.row.owners if node in role.peers]
    behind = [node for node in behind if not _has_acknowledged(role, role.peers[node])]
    for node in behind:
        role.peers[node].is_behind, role.peers[node].ready = True, False
    return tuple(behind)


def _has_acknowledged(role: Primary, peer: Peer) -> bool:
    return peer.adopted and peer.lwm >= role.acked


def _do_without_away(zone: ZoneCopies, role: Primary) -> None:
    """With FULL_SYNC, wait no longer for copies that were reported as ready and are away since."""
    if role.is_full_sync:
        for node, peer in role.peers.items():
            if node not in zone.online:
                role.set_ready(peer, -1)


def _report_ready(zone: ZoneCopies, role: Primary, now: Now) -> None:
    """Report voters that adopted and hold what was answered, but are no online owners.

    And owners that the master was told are behind, once.
    """
    voters = role.row.voter_nodes
    for node, peer in role.peers.items():
        is_away = role.is_full_sync and node not in zone.online
        if not peer.adopted:
            role.set_ready(peer, -1)
        if node in role.row.replicas:
            peer.ready = not peer.is_behind
            if peer.is_behind and _has_acknowledged(role, peer):
                peer.is_behind, peer.ready = False, True
                zone.out.send_durable(MASTER, _copy_ready(zone, role, node))  # behind that report
            continue
        peer.ready, peer.is_behind = node not in voters, False
        ready = node in voters and _has_acknowledged(role, peer) and not is_away
        if ready and now.boot_ms >= ready_due_ms(zone, role, node, peer):
            role.retries.note_sent(Retry.READY, now.boot_ms, node)
            if peer.ready_ms < 0:
                role.set_ready(peer, now.boot_ms)
            zone.out.send(MASTER, _copy_ready(zone, role, node))


def _copy_ready(zone: ZoneCopies, role: Primary, node: str) -> CopyReady:
    incarnation = zone.registered.get(node, 0)
    partition, store = role.copy.partition, role.stores[node]
    return CopyReady(zone.uid, partition, role.term, node, store, incarnation)


def ready_due_ms(zone: ZoneCopies, role: Primary, node: str, peer: Peer) -> int:
    """Return when to report again that the copy of `node` is ready (boot ms).

    Each time after twice as long: the row that answers it waits for those of thousands of other
    partitions when an agent returns.
    """
    last_ms = role.retries.sent_ms(Retry.READY, node)
    waited_ms = last_ms - peer.ready_ms if peer.ready_ms >= 0 else 0
    return last_ms + min(max(waited_ms, zone.settings.retry_ms), READY_AGAIN_MAX_MS)


def _migrate(zone: ZoneCopies, role: Primary, now: Now) -> None:
    migration = role.row.active
    if migration is None:
        return
    copy, destination = role.copy, migration.destination
    if role.joint is None:
        if destination is not None and destination != role.holder:
            peer = role.peers.get(destination.node)
            if peer is None or not peer.adopted or copy.lwm - peer.lwm > JOINT_LAG_MAX:
                return
            held = zone.leases.held_until(destination.node)
            if role.serves(now.boot_ms) and held <= now.boot_ms:
                return  # joint mode needs its lease, which comes with the next heartbeat
        role.joint = JointMode(migration, copy.lwm)
        zone.renew_lease(role)
    if role.acknowledged() >= role.joint.hwm:
        message = CaughtUp(
            zone.uid, copy.partition, migration.migration_id, role.row.version, role.term
        )
        _to_master(zone, role, Retry.CAUGHT_UP, message, now)
    is_frozen = role.frozen is not None and role.frozen.migration_id == migration.migration_id
    if is_frozen and role.acknowledged() == copy.lwm:
        frozen = Frozen(zone.uid, copy.partition, migration.migration_id, role.term, copy.lwm)
        if _begin_try(zone, role, Retry.FROZEN, now):
            zone.out.send(MASTER, frozen)  # its content is already durable, and clients wait


def freeze(zone: ZoneCopies, role: Primary, migration_id: str, now: Now) -> None:
    """Stop serving in this term; report it when everything answered is where it must be."""
    migration = role.row.active
    if migration is None or migration.migration_id != migration_id:
        return
    if role.joint is None or role.acknowledged() < role.joint.hwm:
        return  # not caught up in this term: the master relied on an old report
    if role.frozen is None:
        role.frozen = FrozenFor(migration_id, now.boot_ms)
        role.retries.note_answered(Retry.FROZEN)
    step(zone, role, now)


def refused(zone: ZoneCopies, role: Primary, node: str, promised: int) -> None:
    """Handle that a copy refused our Fence, Append or Sync."""
    if promised > role.term:
        zone.end_role(role)
        return
    peer = role.peers.get(node)
    if peer is not None:
        # Its promise was lost with its store, or its copy by a row in between: fence again.
        peer.promised = peer.adopted = False
        peer.lwm = -1
        zone.renew_lease(role)


def peer_restarted(role: Primary, node: str) -> None:
    """Note that `node` has a new process, which has forgotten leases and what it was sent.

    After a power failure it may also have lost updates that were not synced.
    """
    peer = role.peers.get(node)
    if peer is not None:
        peer.promised = peer.adopted = peer.ready = False
        peer.lwm = -1
        peer.asked_ms = -1
        if not role.persisted:
            peer.answer = None


def tick(zone: ZoneCopies, role: Primary, now: Now) -> None:
    """Do what is due by time for one role.

    - Repeat what was not answered.
    - Tell our position to copies that are behind.
    - Give up clients that wait, where the lease has been over for too long.
    """
    settings = zone.settings
    role.lease.note(now.boot_ms)
    lapsed_ms = role.lease.lapsed_ms
    if (
        lapsed_ms
        and role.waiters
        and role.gave_up_ms != lapsed_ms
        and now.boot_ms - lapsed_ms >= zone.park_bound_ms
    ):
        role.gave_up_ms = lapsed_ms
        zone.give_up(role.take_clients())
    if role.answers_alone and role.waiters:  # perhaps the lease is back
        zone.advance(role)
    if not role.is_quiet():
        step(zone, role, now)
    if not role.persisted:
        return
    copy = role.copy
    news = False
    if now.boot_ms - role.announced_ms >= settings.announce_ms:
        copy.settled = max(copy.settled, role.settled())
        news = (copy.majority, copy.settled) != role.announced
    for node, peer in role.peers.items():
        if not peer.adopted:
            continue
        behind = peer.lwm < copy.lwm and now.boot_ms - peer.progress_ms >= settings.repair_ms
        if news or (behind and _begin_try(zone, role, Retry.POSITION, now, node)):
            zone.announce(node, role.batch([]))
    if news:
        role.announced_ms = now.boot_ms
        role.announced = (copy.majority, copy.settled)
        zone.purge(copy)


def trouble(zone: ZoneCopies, role: Primary, now: Now) -> Trouble | None:
    """Return in what state the role is stuck, for the report to the master; None if it is not."""
    if role.stage is not Stage.SERVING:
        kind, since = TroubleKind.ACTIVATING, role.began_ms
    elif role.frozen is not None:
        kind, since = TroubleKind.FROZEN, role.frozen.since_ms
    elif zone.is_isolated:
        return None  # another primary would serve no longer without the master
    elif role.serving_until <= now.boot_ms and role.lease.lapsed_ms:
        kind, since = TroubleKind.NO_QUORUM, max(role.lease.lapsed_ms, role.began_ms)
    else:
        return None
    if now.boot_ms - since < TROUBLE_AFTER_MS:
        return None
    return Trouble(zone.uid, role.copy.partition, role.term, kind, now.boot_ms - since)
