"""Stories that once went wrong, found by seeds; each is told here without chance."""

from collections.abc import Callable, Mapping

import msgspec
import pytest
from msgspec.msgpack import encode

from quorate.facts.partition_row import MigrationKind, PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import NodeRecord, Voter
from quorate.facts.zone import SyncWrites, ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.master import CaughtUp, CopyReady, Inventory, PreparedRow, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Acks, Append, FenceAck, Heartbeat
from quorate.protocol.messages.transfer import Updates
from quorate.protocol.metastore import Key, NodeKey, Revision, ShardKey, Value, ZoneKey
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster
from quorate_sim.changed import changed
from quorate_sim.disk import SimStorage
from quorate_sim.metastore import Outcome
from quorate_sim.network import Link, Process
from quorate_sim.scenario import SETTINGS, Scenario
from quorate_sim.world import MS

pytestmark = pytest.mark.simulation

Answer = Callable[[Outcome, Revision], None]


def test_index_0_waits_for_its_primary_when_a_backup_is_back_first() -> None:
    story = Scenario(agents=2, replicas=2)
    primary, backup = story.primary, story.backups()[0]
    story.written(primary, b"x", b"1")
    master = story.cluster.masters[-1].name
    story.cut(primary, backup, off=(master,))
    story.wait(lambda: story.row.owners == (), "both have left")
    for pair in ((backup, master), (master, backup)):
        story.cluster.network.heal(*pair)
    story.run(1000)
    assert story.row.replicas[0] is None
    story.heal()
    story.come_to_rest()
    assert story.row.replicas[0] == primary


def test_a_voter_that_does_not_tell_what_it_has_delays_a_take_over_but_not_for_ever() -> None:
    """Its disk hangs, say: the others and it are a quorum."""
    story = Scenario()
    primary, silent = story.primary, story.backups()[0]
    story.written(primary, b"x", b"1")
    story.cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, Inventory) and sender.name == silent else 1
    )
    story.crash(silent)
    story.start(silent)
    story.run(500)
    story.crash(primary)

    new = story.wait_for_primary(primary)
    assert new != silent, "one that has told is preferred"
    assert story.read(new, b"x") == b"1"
    story.cluster.network.judge = None
    story.start(primary)
    story.come_to_rest()


def test_a_delta_larger_than_one_answer_is_asked_for_piece_by_piece() -> None:
    story = Scenario()
    primary, away = story.primary, story.backups()[-1]
    story.cut(away, off=(primary,))
    for number in range(12):
        story.written(primary, b"k%d" % number, b"v" * 2000)
    story.heal()
    story.come_to_rest()


def test_a_copy_whose_machine_lost_updates_owns_again_when_it_has_them_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its process before had acknowledged counts no more: not for a hand-over to it either."""
    story = Scenario(sync_writes=SyncWrites.INTERVAL)
    primary, away = story.primary, story.backups()[0]
    storage = story.zone(away).storage
    assert isinstance(storage, SimStorage)
    story.wait(lambda: not storage.unsynced, "what was written is synced")
    for number in range(20):
        story.written(primary, b"k%d" % number, b"v")
    assert storage.unsynced
    with monkeypatch.context() as patched:
        patched.setattr(story.cluster.world.random, "randint", lambda low, high: low)
        story.crash(away, machine_too=True)  # all that was not synced is lost
    story.cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, Updates) else 1
    )
    story.start(away)
    story.run(2000)
    assert story.copy(away).lwm < story.copy(primary).lwm
    assert away not in story.row.owners
    story.cluster.network.judge = None
    story.come_to_rest()
    assert away in story.row.owners


def test_what_was_asked_for_before_a_term_was_adopted_may_come_after_it() -> None:
    """The answer of a process that another has followed: its update is of a term that lost."""
    story = Scenario()
    former = story.primary
    story.written(former, b"k", b"1")
    earlier = story.role(former)
    assert earlier is not None
    story.crash(former)
    primary = story.wait_for_primary(former)
    role = story.role(primary)
    assert role is not None
    assert earlier.term < role.term
    late = encode((role.copy.lwm + 1, earlier.term, ()))
    agent, node = story.agent(primary), next(iter(role.peers))
    answer = Updates("zone", 0, role.term, (late,), 0)
    agent.run(lambda: agent.core.receive(node, answer, agent.now()))
    story.written(primary, b"k", b"2")


def test_few_large_updates_do_not_take_the_small_ones_after_them_out_of_the_log() -> None:
    settings = msgspec.structs.replace(SETTINGS, log_bytes_max=20_000)
    story = Scenario(settings=settings)
    primary, away = story.primary, story.backups()[-1]
    for number in range(3):
        story.written(primary, b"large-%d" % number, bytes(6000))
    story.crash(away)
    for number in range(40):
        story.written(primary, b"small-%d" % number, bytes(60))
    copy = story.copy(primary)
    story.wait(lambda: copy.log_from > 0, "its log is cut")
    story.start(away)
    story.come_to_rest()
    zone = story.zone(away)
    assert (zone.full_copies, zone.full_reasons) == (0, {})
    assert zone.copies[0].lwm >= 43


def test_a_primary_frozen_for_a_hand_over_that_was_given_up_serves_again() -> None:
    story = Scenario()
    primary = story.primary
    story.written(primary, b"x", b"1")
    agent = story.agent(primary)
    agent.run(lambda: agent.core.leave(agent.now()))
    story.wait(
        lambda: (role := story.role(primary)) is not None and bool(role.frozen),
        "it is frozen",
        5000,
    )
    story.cut(*story.cluster.agents, off=(story.cluster.masters[-1].name,))
    story.run(1500)  # everybody has left, as the master sees it
    story.heal()
    story.come_to_rest()
    assert story.read(story.wait_for_primary(), b"x") == b"1"


def test_answers_that_joint_mode_releases_are_given() -> None:
    story = Scenario()
    primary = story.primary
    story.crash(story.backups()[-1])
    story.cluster.add_agent("a4")
    story.wait(lambda: story.row.active is not None, "a replacement begins")
    ops = []
    for number in range(200):
        ops.append(story.write(primary, b"k%d" % number, b"v"))
        story.run(1)
    story.wait(lambda: all(op.outcome == "ok" for op in ops), "all are answered")
    story.come_to_rest()


def test_a_copy_that_left_is_not_filled_again_by_what_was_on_its_way() -> None:
    story = Scenario()
    primary, leaver = story.primary, story.backups()[-1]
    story.written(primary, b"x", b"1")
    # What the primary sends the leaver stands still while another takes its place.
    story.cut(leaver, off=(primary, story.cluster.masters[-1].name))
    story.written(primary, b"x", b"2")
    story.cluster.add_agent("a4")
    story.wait(lambda: leaver not in story.row.voter_nodes, "another took its place")
    master = story.cluster.masters[-1].name
    for pair in ((leaver, master), (master, leaver)):
        story.cluster.network.heal(*pair)
    story.run(300)  # the leaver hears of the row first, then what the primary had sent
    story.heal()
    story.come_to_rest()


def test_an_adopting_copy_forgets_what_an_earlier_term_announced() -> None:
    story = Scenario()
    old = story.primary
    story.written(old, b"x", b"0")
    story.cut(old)
    for number in range(5):
        story.write(old, b"k%d" % number, b"lost")
    new = story.wait_for_primary(old)
    story.heal()
    story.wait(lambda: old in story.row.replicas, "it owns again")
    story.run(1000)
    zone = story.zone(old)
    assert zone.copies[0].hwm == zone.copies[0].lwm
    assert not zone.fills
    assert story.read(new, b"x") == b"0"


def test_a_zone_whose_placement_was_interrupted_waits_for_agents_to_place_the_rest() -> None:
    node = NodeRecord("a1", "s1", 1, "a1", 1, "a1")
    zone = ZoneRecord("zone", "zone", 128, 1)
    holder = node.holder(True)
    rows = tuple(PartitionRow(p, 1, 1, holder, ("a1",), (Voter("a1", "s1"),)) for p in range(64))
    now = Now(0, 0)
    master = Master(2, DEFAULTS, now)  # the first one wrote one of two objects
    master.load({ZoneKey("zone"): zone, NodeKey("a1"): node, ShardKey("zone", 0): rows}, now)
    master.tick(now)
    master.check()
    written = dict(master.take_outputs().writes)
    assert ShardKey("zone", 1) not in written  # a1 has not been heard of yet


def test_a_newcomer_that_deleted_its_copy_between_two_migrations_is_filled_again() -> None:
    story = Scenario(agents=3, replicas=2)
    cluster, primary = story.cluster, story.primary
    for number in range(5):
        story.written(primary, b"k%d" % number, b"before")
    cluster.zones["zone"] = zone = msgspec.structs.replace(cluster.zones["zone"], replicas=3)
    master = cluster.masters[-1]
    master.run(lambda: master.declare(zone))
    story.wait(lambda: story.row.active is not None, "a copy is made")
    first = story.row

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        """The destination is never asked, the primary hears of no other row, and once they are
        even nothing that it sends tells it that the destination has forgotten it."""
        is_newer = isinstance(message, ZoneTable) and any(
            row.version > first.version for row in message.rows
        )
        role = story.role(primary)
        is_even = role is not None and role.joint is not None
        lost = isinstance(message, PreparedRow) or (is_newer and receiver.name == primary)
        lost |= is_even and sender.name == primary and isinstance(message, Append)
        return 0 if lost else 1

    cluster.network.judge = judge
    story.wait(
        lambda: story.row.active is not None and story.row.version > first.version,
        "the copy is given up, and made again on the same agent",
    )
    assert first.active is not None
    assert story.row.active is not None
    assert story.row.active.destination == first.active.destination
    story.run(100)
    second = story.row
    cluster.network.judge = None
    story.wait(lambda: len(story.row.owners) == 3, "it owns")
    assert story.row.version == second.version + 1  # committed, and not given up again
    story.written(primary, b"x", b"after")
    story.come_to_rest()


def test_a_newcomer_below_the_folded_lineage_is_filled_by_a_full_copy() -> None:
    story = Scenario(agents=4)
    first = story.primary
    newcomer = next(name for name in story.cluster.agents if name not in story.row.replicas)
    for number in range(5):
        story.written(first, b"k%d" % number, b"1")
    story.crash(first)
    story.run(20)
    story.start(first)
    story.written(story.wait_for_primary(), b"k5", b"2")
    story.come_to_rest()
    story.run(1000)  # everybody has heard that everybody has everything
    primary, (heir, other) = story.primary, story.backups()
    for name in (primary, heir):
        cut = story.copy(name)
        cut.cut_log(cut.lwm)
    story.crash(primary)
    assert story.wait_for_primary(primary) == heir
    story.wait(lambda: story.row.replicas == (heir, None, other), "the other one follows")
    # What the heir has forgotten is forgotten in the other's lineage, but not in its log.
    copy = story.copy(other)
    story.wait(lambda: copy.last_term == story.row.term, "it has adopted the lineage")
    assert (copy.lineage.base_counter, copy.log_from) == (5, 0)
    story.wait(lambda: newcomer in story.row.replicas, "the newcomer owns")
    zone = story.zone(newcomer)
    assert zone.full_reasons == {"EmptyStore": 1}
    assert story.read(story.primary, b"k3") == b"1"


def test_a_migration_is_not_committed_to_a_destination_whose_store_is_gone_meanwhile() -> None:
    story = Scenario(agents=4, in_memory=True)
    cluster, master = story.cluster, story.cluster.masters[-1]
    story.written(story.primary, b"x", b"1")
    newcomer = next(name for name in cluster.agents if name not in story.row.replicas)
    leaver, core = story.backups()[-1], master.master
    assert core is not None
    master.run(lambda: core.drain(leaver, True, master.now()) and None)
    lost: list[PartitionRow] = []
    write = cluster.metastore.write

    def write_once_in_vain(
        who: str,
        key: Key,
        value: Value | None,
        expected: Revision | None,
        known: Mapping[str, NodeRecord],
        zone: ZoneRecord | None,
        answer: Answer,
    ) -> None:
        """The row after the migration is not written, nobody knows it, and its destination dies."""
        if lost or not isinstance(value, tuple) or newcomer not in value[0].replicas:
            write(who, key, value, expected, known, zone, answer)
            return
        lost.append(value[0])
        story.crash(newcomer)
        story.start(newcomer)
        story.world.after(500 * MS, lambda: answer("unknown", ""))

    with changed(cluster.metastore, "write", write_once_in_vain):
        story.wait(lambda: bool(lost), "the migration is to be committed")
        story.wait(lambda: story.row.version > lost[0].version, "it is given up")
    story.come_to_rest()
    assert story.read(story.primary, b"x") == b"1"


def test_a_copy_too_many_is_kept_when_the_store_of_another_is_gone_meanwhile() -> None:
    """Its DROP was committed, which left fewer copies than the zone is to have (I-1)."""
    story = Scenario(agents=4, replicas=4, in_memory=True)
    cluster, master = story.cluster, story.cluster.masters[-1]
    core = master.master
    assert core is not None
    story.written(story.primary, b"x", b"1")
    story.cut(*story.backups()[:2], off=(master.name,))
    story.wait(lambda: len(story.row.owners) == 2, "two have left, as the master sees it")
    cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, CaughtUp | CopyReady) else 1
    )
    cluster.zones["zone"] = zone = msgspec.structs.replace(cluster.zones["zone"], replicas=3)
    master.run(lambda: master.declare(zone))
    story.wait(lambda: story.row.active is not None, "one of them is to go")
    active, others = story.row.active, {*story.row.voter_nodes} - {*story.row.owners}
    assert active is not None
    assert active.kind is MigrationKind.DROP
    assert active.source in others
    (away,) = others - {active.source}
    leaver = active.source
    story.heal()
    story.crash(away)
    story.start(away)
    story.wait(lambda: core.agents[away].online, "it is back without its data")
    cluster.network.judge = None

    story.wait(lambda: story.row.active != active, "that is given up")
    assert leaver in story.row.voter_nodes
    story.come_to_rest()
    assert len(story.row.owners) == len(story.row.voters) == 3
    assert story.read(story.primary, b"x") == b"1"


def test_a_primary_that_stood_still_is_given_time_to_renew_its_leases() -> None:
    """It was followed by itself in another term at once, for not having served for so long, though
    all it needed was the answer to its next heartbeat."""
    patient = msgspec.structs.replace(SETTINGS, failure_detection_ms=6000)
    story = Scenario(settings=patient)
    primary, term = story.primary, story.row.term
    story.run(500)
    story.agent(primary).freeze()
    story.run(2500)
    story.agent(primary).thaw()
    story.wait(lambda: story.serves(primary), "it serves again")
    story.run(3000)
    assert story.row.term == term


def test_where_a_zone_that_misses_copies_is_deleted_the_other_ones_primaries_move_on() -> None:
    """Nothing of it waits in the queue any more, although it was not where it should be."""
    gone = ZoneRecord("uid-1", "gone", 4, 3, scale_down_ms=10_000)
    kept = msgspec.structs.replace(gone, uid="uid-2", name="kept")
    world = LoneMaster(gone, kept)
    world.kill("a")
    world.pass_time(gone.scale_down_ms + 1000)
    assert world.status(gone).missing_copies == {1: 4}

    world.master.set_zone(msgspec.structs.replace(gone, deleting=True), world.now)
    world.kill("b")
    world.pass_time(2000)

    assert all(row.owners == ("c",) for row in world.rows(kept).values())


def test_a_write_is_answered_when_the_store_that_it_waits_for_is_gone() -> None:
    """The quorum is smaller from then on; no message but the registry's tells the primary."""
    story = Scenario(agents=2, replicas=2)
    primary, backup = story.primary, story.backups()[0]

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        return 0 if isinstance(message, Acks | ZoneTable) and receiver.name == primary else 1

    story.cluster.network.judge = judge
    op = story.write(primary, b"k", b"1")
    story.run(200)
    assert op.outcome == "open"
    story.crash(backup)
    story.cluster.wipe(backup)
    story.start(backup)

    story.wait(lambda: op.outcome == "ok", "it is answered", 5000)

    story.cluster.network.judge = None
    story.come_to_rest()


def test_a_write_is_answered_when_a_row_makes_the_quorum_smaller() -> None:
    """The last Acks were lost while joint mode needed one voter more."""
    story = Scenario(agents=4, replicas=4)
    cluster, primary = story.cluster, story.primary
    one = story.backups()[0]
    arrived: list[Message] = []
    lost: set[str] = set()

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        if not isinstance(message, Acks):
            return 1
        if sender.name == one and not arrived:
            arrived.append(message)
            return 1
        lost.add(sender.name)
        return 0

    cluster.zones["zone"] = zone = msgspec.structs.replace(cluster.zones["zone"], replicas=3)
    master = cluster.masters[-1]
    master.run(lambda: master.declare(zone))
    role = story.role(primary)
    assert role is not None
    story.wait(lambda: role.joint is not None, "joint mode")
    cluster.network.judge = judge
    op = story.write(primary, b"k", b"1")
    story.wait(lambda: bool(arrived) and len(lost) > 1, "all have it", step_ms=1)
    assert role.joint is not None
    assert op.outcome == "open"

    story.wait(lambda: story.row.active is None and role.row == story.row, "the row is there")

    story.wait(lambda: op.outcome == "ok", "it is answered", 100)


def _elected(story: Scenario, stuck: str) -> list[str]:
    """Whom the master elects, in this order, until another agent than `stuck` serves."""
    elected: list[str] = []
    term = story.row.term

    def is_served() -> bool:
        nonlocal term
        row = story.row
        if row.term != term and row.primary is not None:
            term = row.term
            elected.append(row.primary.node)
        return any(story.serves(name) for name in story.cluster.agents if name != stuck)

    story.wait(is_served, f"an agent other than {stuck} serves")
    return elected


def test_a_primary_that_reaches_no_other_agent_is_not_elected_again() -> None:
    story = Scenario()
    stuck = story.primary
    story.written(stuck, b"x", b"1")
    story.cut(stuck, off=tuple(story.backups()))  # the master still hears all of them

    elected = _elected(story, stuck)

    assert len(elected) == 1, elected
    assert story.read(elected[0], b"x") == b"1"
    story.heal()
    story.come_to_rest()


def test_a_primary_that_is_stuck_in_a_migration_is_not_elected_again() -> None:
    story = Scenario(agents=4)
    stuck = story.primary
    story.written(stuck, b"x", b"1")
    story.drain(story.backups()[-1])
    story.wait(lambda: story.row.active is not None, "a migration is under way")
    story.cut(stuck, off=tuple(name for name in story.cluster.agents if name != stuck))

    elected = _elected(story, stuck)

    assert len(elected) == 1, elected
    assert story.read(elected[0], b"x") == b"1"
    story.heal()
    story.come_to_rest()


def test_a_destination_that_falls_silent_in_joint_mode_costs_the_primary_no_term() -> None:
    """The voters before the migration grant the lease; a write that waits is acknowledged."""
    story = Scenario(agents=4)
    primary = story.primary
    story.written(primary, b"x", b"1")
    (destination,) = {*story.cluster.agents} - {*story.row.voter_nodes}
    story.cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, CaughtUp) else 1
    )
    story.drain(story.backups()[-1])
    role = story.role(primary)
    assert role is not None
    story.wait(lambda: role.joint is not None, "joint mode")
    term = story.row.term
    story.cut(primary, off=(destination,))  # the master still hears both
    op = story.write(primary, b"x", b"2")

    story.wait(lambda: op.outcome != "open", "it is answered")

    assert (op.outcome, story.row.term, story.primary) == ("ok", term, primary)
    story.cluster.network.judge = None
    story.heal()
    story.come_to_rest()


def test_a_voter_that_the_others_do_not_reach_is_not_elected_when_the_primary_is_lost() -> None:
    story = Scenario(agents=5, replicas=5)
    lost, unreached = story.primary, story.backups()[0]  # the next by replica index
    story.written(lost, b"x", b"1")
    story.cut(unreached, off=tuple(name for name in story.cluster.agents if name != unreached))
    story.run(2 * SETTINGS.lease_ms)

    story.crash(lost)
    elected = _elected(story, lost)

    assert unreached not in elected, elected
    story.heal()
    story.start(lost)
    story.come_to_rest()


def test_a_voter_that_has_just_started_holds_up_no_quorum_whose_leases_are_over() -> None:
    """It has forgotten what it granted, so it reports a whole lease; the others' are over."""
    story = Scenario()
    first = story.primary
    story.written(first, b"x", b"0")
    (second, third) = story.backups()
    story.cluster.masters[-1].die()
    story.crash(first)
    story.run(SETTINGS.lease_ms + 100)
    told: list[str] = []

    def judge(link: Link, sender: Process, receiver: Process, message: object) -> int:
        """The answer of the one that has started comes before the third one's."""
        if isinstance(message, FenceAck):
            told.append(sender.name)
            return 0 if sender.name == third and first not in told else 1
        # Leases are granted to nodes: its new process would be given one, and that be waited for.
        return 0 if isinstance(message, Heartbeat) and sender.name == first else 1

    story.cluster.network.judge = judge
    story.start(first)
    story.cluster.add_master()
    story.wait(lambda: first in told, "its answer")

    story.wait(lambda: story.serves(second), "the second serves", SETTINGS.lease_ms // 2)
    assert story.read(second, b"x") == b"0"
    story.cluster.network.judge = None
    story.come_to_rest()
