"""An idle zone is looked at rarely, one with something due as soon as that is due.

Visits are counted, not timed: two hundred zones at rest took an eighth of a core.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord, Voter
from quorate.protocol.agent import agent_reports
from quorate.protocol.agent.activation import TROUBLE_AFTER_MS
from quorate.protocol.agent.all_zones.zones_awake import CLOCK_SET_MS, REST_AFTER_MS
from quorate.protocol.agent.next_look import IDLE_LOOK_MS, next_look_ms
from quorate.protocol.agent.repairs.refill import Refills
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.upkeep import AGE_MARK_MS, DIGEST_KEPT_MS, LOG_CHECK_MS
from quorate.protocol.copies.fill import Fill
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import FrozenFor, Peer
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.master import CopyReady, Members, TroubleKind, ZoneGone
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import Outbox
from quorate.protocol.messages.replication import HeartbeatAck
from quorate.protocol.settings import DEFAULTS
from quorate_lone_agent.core import PARTITIONS, TICK_MS, LoneAgent


def test_zones_at_rest_are_visited_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LoneAgent(100, monkeypatch)

    agent.pass_time(10 * IDLE_LOOK_MS)

    # Once more when the ages of their logs are noted.
    assert {*agent.visits.values()} <= {10, 11}, "not never, and not with every tick"
    assert len(agent.visits) == 100
    assert not agent.flushes


def test_a_zone_in_which_something_happens_is_visited_by_the_next_tick_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(20, monkeypatch)
    events: list[Callable[[], None]] = [
        lambda: agent.tell("zone-7", 2),
        lambda: agent.write("zone-7", b"k"),
        lambda: agent.core.zones["zone-7"].end_role(agent.role("zone-7")),
    ]
    for event in events:
        agent.pass_time(2 * IDLE_LOOK_MS)
        while min(zone.look_ms for zone in agent.core.zones.values()) <= agent.ms + TICK_MS:
            agent.pass_time(TICK_MS)  # the others are not due with the next tick
        agent.visits.clear()
        agent.flushes.clear()
        event()
        agent.pass_time(TICK_MS)

        assert agent.visits == {"zone-7": 1}
        assert {*agent.flushes} <= {"zone-7"}


def test_a_key_is_expired_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LoneAgent(1, monkeypatch)
    agent.write("zone-0", b"k", agent.now.wall_ms + 7 * TICK_MS)

    agent.pass_time(6 * TICK_MS)
    assert (row := agent.role().copy.get(b"k")) is not None
    assert row.value == b"value"
    agent.pass_time(TICK_MS)

    assert (row := agent.role().copy.get(b"k")) is None or row.value is None


def test_an_expiry_is_noted_once_also_when_written_before_the_survey_comes_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    role, due = agent.role(), agent.now.wall_ms + 100 * IDLE_LOOK_MS
    agent.write("zone-0", b"before", due)
    agent.core.zones["zone-0"].survey(role.copy)
    agent.write("zone-0", b"since", due + 1)

    agent.pass_time(2 * IDLE_LOOK_MS)

    assert sorted(role.copy.expiring.heap) == [(due, b"before"), (due + 1, b"since")]


def test_the_end_of_a_lease_that_no_other_role_shares_is_seen_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    zone.own_leases[0] = role
    role.serving_until = agent.ms + 5 * TICK_MS
    zone.wake()

    agent.pass_time(4 * TICK_MS)
    assert role.lease.lapsed_ms == 0
    agent.pass_time(TICK_MS)

    assert role.lease.lapsed_ms == agent.ms


class _Put:
    """Something that makes a zone busy, and its end."""

    def __init__(
        self,
        put: Callable[[Replicas, Primary], object],
        take: Callable[[Replicas, Primary], object],
    ) -> None:
        self.put, self.take = put, take


BUSY = {
    "a fill": _Put(
        lambda zone, role: zone.fills.update({1: None}),
        lambda zone, role: zone.fills.clear(),
    ),
    "rows without room": _Put(
        lambda zone, role: zone.refused_rows.update({0: role.row}),
        lambda zone, role: zone.refused_rows.clear(),
    ),
    "a gap": _Put(
        lambda zone, role: zone.upkeep._stalled.update({1: (0, 0)}),
        lambda zone, role: zone.upkeep._stalled.clear(),
    ),
    "a survey": _Put(
        lambda zone, role: zone.survey(role.copy),
        lambda zone, role: zone.surveys.clear(),
    ),
    "tombstones to drop": _Put(
        lambda zone, role: zone.purging.update({0: None}),
        lambda zone, role: zone.purging.clear(),
    ),
    "a refill": _Put(
        lambda zone, role: zone.refills._wanted.update({1: None}),
        lambda zone, role: zone.refills._wanted.clear(),
    ),
    "a transaction": _Put(
        lambda zone, role: zone.transactions._coordinators.update({b"t": None}),
        lambda zone, role: zone.transactions._coordinators.clear(),
    ),
    "somebody who waits for locks": _Put(
        lambda zone, role: zone.transactions.parts.waiting._waiting.update({1: {b"t": None}}),
        lambda zone, role: zone.transactions.parts.waiting._waiting.update({1: {}}),
    ),
    "a partition that is held back": _Put(
        lambda zone, role: zone.transactions.parts.waiting._held_back.update({1: 1}),
        lambda zone, role: zone.transactions.parts.waiting._held_back.clear(),
    ),
    "an open part": _Put(
        lambda zone, role: role.parts.update({b"t": None}),
        lambda zone, role: role.parts.clear(),
    ),
    "a role that is frozen": _Put(
        lambda zone, role: setattr(role, "frozen", FrozenFor("m-1", 0)),
        lambda zone, role: setattr(role, "frozen", None),
    ),
}


def _next_look_ms(zone: Replicas, now: Now) -> int:
    return next_look_ms(zone, zone.upkeep, zone.refills, zone.repairs, zone.transactions, now)


@pytest.mark.parametrize("what", [*BUSY])
def test_a_zone_with_something_under_way_is_visited_with_every_tick(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    assert _next_look_ms(zone, agent.now) == agent.ms + IDLE_LOOK_MS

    BUSY[what].put(zone, role)
    assert _next_look_ms(zone, agent.now) == agent.ms

    BUSY[what].take(zone, role)
    assert _next_look_ms(zone, agent.now) == agent.ms + IDLE_LOOK_MS


@pytest.mark.parametrize(
    ("put", "due_in_ms"),
    [
        # Becoming durable is an event.
        (lambda role, now_ms: setattr(role, "persisted", False), IDLE_LOOK_MS),
        # A client waits for acknowledgements until its primary's lease has been over for a while.
        (lambda role, now_ms: role.waiters.append(Waiter((), None, 1)), IDLE_LOOK_MS),
        (lambda role, now_ms: _lapse(role, now_ms), DEFAULTS.park_bound_ms - 100),
        (lambda role, now_ms: _announced(role, now_ms), DEFAULTS.announce_ms - 100),
        (lambda role, now_ms: _unanswered(role, now_ms), DEFAULTS.retry_ms - 100),
    ],
    ids=["not durable", "waiter", "waiter without lease", "news", "unanswered"],
)
def test_a_role_that_waits_for_events_is_looked_at_when_its_next_step_is_due(
    monkeypatch: pytest.MonkeyPatch, put: Callable[[Primary, int], object], due_in_ms: int
) -> None:
    """With every tick, thousands of partitions that activate took all of an agent's CPU."""
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()

    put(role, agent.ms)

    assert _next_look_ms(zone, agent.now) == agent.ms + due_in_ms
    assert zone.in_progress


def _lapse(role: Primary, now_ms: int) -> None:
    role.waiters.append(Waiter((), None, 1))
    role.lease.ms = role.lease.lapsed_ms = now_ms - 100


def _announced(role: Primary, now_ms: int) -> None:
    role.announced_ms = now_ms - 100
    role.announced = (-1, -1)


def _unanswered(role: Primary, now_ms: int) -> None:
    peer = role.peers["a"] = Peer()  # any agent whose store is the registered one
    peer.asked_ms = now_ms - 100
    role.stores["a"] = "store-a"


def test_a_copy_that_is_ready_is_reported_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """When an agent returned, thousands of these reports each half second delayed the master."""
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    role.follow(replace(role.row, voters=(*role.row.voters, Voter("b", "store-b"))))
    peer = role.peers["b"]
    peer.promised, peer.adopted, peer.lwm = True, True, role.copy.lwm
    zone.renew_lease(role)
    zone.wake()
    told: list[int] = []
    send = Outbox.send

    def noted(out: Outbox, node: str, message: Message) -> None:
        if isinstance(message, CopyReady):
            told.append(agent.ms)
        send(out, node, message)

    monkeypatch.setattr(Outbox, "send", noted)
    agent.pass_time(32_000)
    assert [ms - told[0] for ms in told] == [0, 500, 1000, 2000, 4000, 8000, 16_000, 24_000]

    told.clear()
    zone.repeat_reports()  # a new master asks
    agent.pass_time(TICK_MS)
    assert told == [agent.ms]


def test_a_copy_that_missed_more_while_it_was_repaired_is_looked_at_until_it_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The zone rested, and the copy asked again up to ten seconds late."""
    agent = LoneAgent(1, monkeypatch)
    zone, copy = agent.core.zones["zone-0"], agent.role().copy
    zone.roles.pop(copy.partition)  # it follows
    copy.hwm = copy.lwm + 1
    zone.upkeep.tick(agent.now)
    agent.ms += DEFAULTS.repair_ms
    zone.upkeep.tick(agent.now)
    assert zone.fills  # it has asked
    zone.fills.clear()  # and got what it asked for, while there was more
    assert _next_look_ms(zone, agent.now) == agent.ms
    copy.hwm = copy.lwm
    zone.upkeep.tick(agent.now)
    assert _next_look_ms(zone, agent.now) > agent.ms


def test_a_refill_that_is_given_up_leaves_a_gap_to_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gaps are looked for first in a tick, and refills are given up after that."""
    agent = LoneAgent(1, monkeypatch)
    zone, copy = agent.core.zones["zone-0"], agent.role().copy
    zone.roles.pop(copy.partition)  # it follows
    copy.hwm = copy.lwm + 1
    zone.fills[copy.partition] = Fill(copy, copy.lineage, copy.lwm, ["b"], DEFAULTS, refill="t")
    monkeypatch.setattr(Refills, "tick", lambda self, now: zone.drop_fill(copy.partition))

    zone.tick(agent.now)
    assert zone.look_ms == agent.ms
    zone.tick(agent.now)

    assert not zone.upkeep.is_idle


def test_a_copy_that_is_gone_keeps_no_zone_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, copy = agent.core.zones["zone-0"], agent.role().copy
    zone.roles.pop(copy.partition)
    copy.hwm = copy.lwm + 1
    zone.upkeep.tick(agent.now)
    assert not zone.upkeep.is_idle
    del zone.copies[copy.partition]
    zone.upkeep.tick(agent.now)
    assert zone.upkeep.is_idle


# --- zones that are awake ------------------------------------------------------------------------


def test_a_zone_is_awake_from_when_something_happens_until_it_was_quiet_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(20, monkeypatch)
    assert not agent.core.awake

    agent.tell("zone-7", 2)
    assert {*agent.core.awake} == {"zone-7"}
    agent.pass_time(REST_AFTER_MS - TICK_MS)
    assert {*agent.core.awake} == {"zone-7"}
    agent.pass_time(LOG_CHECK_MS + REST_AFTER_MS)

    assert not agent.core.awake


def test_a_zone_stays_awake_while_its_clients_have_something_to_settle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(2, monkeypatch)
    zone, has_work = agent.core.zones["zone-1"], True
    zone.clients_have_work = lambda: has_work

    zone.wake()
    agent.pass_time(4 * REST_AFTER_MS)
    assert {*agent.core.awake} == {"zone-1"}
    has_work = False
    agent.pass_time(TICK_MS)

    assert not agent.core.awake


def test_a_partition_without_its_role_is_told_however_long_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone = agent.core.zones["zone-0"]

    zone.end_role(agent.role())
    agent.pass_time(2 * IDLE_LOOK_MS)

    assert [trouble.partition for trouble in agent.core._reports._troubles(agent.now)] == [0]


def _all_roles(agent: LoneAgent) -> list[Primary]:
    return [role for zone in agent.core.zones.values() for role in zone.roles.values()]


def test_the_end_of_a_shared_lease_is_noted_for_all_roles_and_wakes_no_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lapse woke every zone; that kept the event loop busy, so that the next lease lapsed."""
    agent = LoneAgent(3, monkeypatch)
    roles = _all_roles(agent)
    (lease,) = {role.lease for role in roles}
    lease.ms = agent.ms + 3 * TICK_MS

    agent.pass_time(2 * TICK_MS)
    assert lease.lapsed_ms == 0
    agent.pass_time(TICK_MS)
    assert lease.lapsed_ms == agent.ms

    agent.pass_time(TROUBLE_AFTER_MS - TICK_MS)
    assert not agent.core._reports._troubles(agent.now)
    agent.pass_time(TICK_MS)
    stuck = {
        (t.zone, t.partition, t.kind, t.since_ms) for t in agent.core._reports._troubles(agent.now)
    }
    assert stuck == {
        (uid, partition, TroubleKind.NO_QUORUM, TROUBLE_AFTER_MS)
        for uid in agent.core.zones
        for partition in range(PARTITIONS)
    }
    assert not agent.core.awake

    lease.ms = agent.ms + 10 * TICK_MS
    agent.pass_time(TICK_MS)
    assert lease.lapsed_ms == 0
    assert not agent.core._reports._troubles(agent.now)


def test_many_troubles_are_told_report_by_report(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LoneAgent(5, monkeypatch)
    monkeypatch.setattr(agent_reports, "TROUBLES_MAX", PARTITIONS + 1)
    (lease,) = {role.lease for role in _all_roles(agent)}
    lease.ms = agent.ms
    agent.pass_time(TROUBLE_AFTER_MS + TICK_MS)

    told = [
        [trouble.zone for trouble in agent.core._reports._troubles(agent.now)] for _ in range(5)
    ]

    assert {len(report) for report in told} == {2 * PARTITIONS}
    assert Counter(uid for report in told for uid in report) == dict.fromkeys(
        agent.core.zones, 2 * PARTITIONS
    )


def test_members_that_leave_and_return_wake_no_zone_and_new_stores_wake_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(3, monkeypatch)
    a = NodeRecord("a", "store-a", 1, "a", 1, "a")
    b = NodeRecord("b", "store-b", 1, "b", 1, "b")
    told: list[tuple[NodeRecord, bool]] = [
        (b, True),
        (replace(b, left_since_ms=1, draining=True, failure_domain="row-1"), False),
        (b, False),
        (replace(b, store="store-b2"), True),
        (replace(b, store="store-b2", incarnation=2), True),
    ]
    for sequence, (record, wakes) in enumerate(told, start=2):
        assert agent.core.receive_from_master(Members(1, (a, record), sequence), agent.now)
        assert len(agent.core.awake) == (3 if wakes else 0)
        for zone in agent.core.zones.values():
            assert ("b" in zone.online) is (record.left_since_ms is None)
            assert zone.domains["b"] == record.failure_domain
        agent.pass_time(2 * IDLE_LOOK_MS)


def test_an_answer_to_a_heartbeat_recounts_shared_leases_and_no_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in zones that are awake: there, each role was recounted."""
    agent = LoneAgent(3, monkeypatch)
    for zone in agent.core.zones.values():
        zone.wake()
    assert len({role.lease for role in _all_roles(agent)}) == 1
    recounted: list[Primary] = []
    monkeypatch.setattr(Primary, "granted_until", lambda role, held: recounted.append(role))
    agent.core.members["b"] = agent.core.members["a"]
    asked = agent.core.leases.heartbeat("b", agent.now)

    agent.core.receive("b", HeartbeatAck(asked.sent_ms, 2000, 1, ()), agent.now)

    assert not recounted


@pytest.mark.parametrize("by_ms", [CLOCK_SET_MS, 3_600_000])
def test_a_key_expires_at_once_when_the_wall_clock_is_set_past_it(
    monkeypatch: pytest.MonkeyPatch, by_ms: int
) -> None:
    agent = LoneAgent(1, monkeypatch)
    agent.write("zone-0", b"k", agent.now.wall_ms + by_ms + IDLE_LOOK_MS // 2)
    agent.pass_time(IDLE_LOOK_MS // 2)
    assert not agent.core.awake

    agent.wall_ahead_ms += by_ms
    agent.pass_time(TICK_MS)

    assert (row := agent.role().copy.get(b"k")) is None or row.value is None


def test_a_log_that_became_too_long_is_cut_soon_and_ages_are_noted_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    monkeypatch.setattr(zone.storage, "log_bytes", lambda partition: 1 << 30)
    monkeypatch.setattr(zone.storage, "log_floor", lambda partition, share: role.copy.lwm)

    agent.write("zone-0", b"k")
    agent.pass_time(LOG_CHECK_MS)
    assert role.copy.log_from == role.copy.lwm > 0

    before = len(zone.upkeep._marks)
    agent.pass_time(AGE_MARK_MS + TICK_MS)
    assert len(zone.upkeep._marks) == before + 1


def test_a_digest_that_nobody_asks_for_any_more_is_forgotten_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    zone.upkeep.count_digest(role.copy, 100)

    agent.pass_time(DIGEST_KEPT_MS - TICK_MS)
    assert zone.upkeep._digests_asked
    agent.pass_time(TICK_MS)

    assert not zone.upkeep._digests_asked


def test_what_becomes_durable_late_is_looked_at_by_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    role = agent.role()
    role.write(((b"k", b"value", 0),))
    agent.core.zones["zone-0"].commands_wrote(role)
    turns = agent.core.flush(agent.now).turns
    agent.pass_time(4 * IDLE_LOOK_MS)  # the disk is slow

    for uid, turn in turns:
        agent.core.synced(uid, turn, agent.now)
    agent.pass_time(TICK_MS)

    assert role.announced == (role.copy.lwm, role.copy.lwm)


def test_nothing_wakes_a_zone_that_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LoneAgent(2, monkeypatch)
    zone = agent.core.zones["zone-0"]
    assert agent.core.receive_from_master(ZoneGone(1, "zone-0"), agent.now)

    zone.wake()
    agent.pass_time(TICK_MS)

    assert not agent.core.awake
