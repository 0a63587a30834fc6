"""With PRIMARY_SYNC clients are answered by the primary alone, and all else waits for a quorum."""

from time import monotonic

import msgspec
import pytest

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ConsistencyMode, SyncWrites, WriteMode, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.waiters import ALONE_MAX_MS, Clientless, Waiter
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.replication import Acks, FenceAck, HeartbeatAck
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.transactions.parts import Telling
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.ownership import activated
from quorate_agent.resp.transaction import Execution, NoPlain, seen
from quorate_agent.resp.view import View
from quorate_lone_master.world import LoneMaster
from quorate_sim.disk import Image, SimStorage

NOW = Now(100_000, 100_000)
LATER = Now(110_000, 110_000)
A = Holder("a", "store-a", 1)
NODES = [NodeRecord(n, f"store-{n}", 1, n, 1, n) for n in "abc"]
ROW = PartitionRow(0, 3, 3, A, ("a", "b", "c"), tuple(Voter(n, f"store-{n}") for n in "abc"))
ZONE = ZoneRecord(
    "uid",
    "books",
    1,
    3,
    mode=ConsistencyMode.HIGH_AVAILABILITY,
    write_mode=WriteMode.PRIMARY_SYNC,
)


class Serving:
    """Agent "a" as primary, with the lease of "b"."""

    def __init__(self) -> None:
        self.leases = Leases(DEFAULTS, 1, 0)
        self.replicas = Replicas(ZONE, A, SimStorage(Image()), self.leases, DEFAULTS, NOW)
        self.replicas.set_members(NODES)
        self.replicas.set_rows([ROW], NOW)
        for node in "bc":
            ack = FenceAck("uid", 0, 3, f"store-{node}", Lineage(), 0, (), 0, False)
            self.replicas.receive(node, ack, NOW)
        self.turn(NOW)
        self.acked("b", 0)
        self.lease(NOW)
        assert self.role.stage is Stage.SERVING

    @property
    def role(self) -> Primary:
        return self.replicas.roles[0]

    def lease(self, now: Now) -> None:
        """Get the lease of "b" anew."""
        sent_ms = self.leases.heartbeat("b", now).sent_ms
        self.leases.granted("b", HeartbeatAck(sent_ms, 2000, 1, ()))

    def acked(self, node: str, lwm: int) -> None:
        self.replicas.receive(node, Acks("uid", ((0, 3, lwm),)), NOW)

    def wrote(self, waiter: Waiter) -> Waiter:
        """Write the keys of `waiter`, which waits for that; not yet durable."""
        self.role.write(tuple((key, b"v", 0) for key in waiter.keys if key is not None))
        self.replicas.commands_wrote(self.role)
        self.role.wait(waiter)
        return waiter

    def turn(self, now: Now) -> None:
        """End the turn, and have it durable at that time."""
        self.replicas.synced(self.replicas.flush(NOW), now)

    def answered(self) -> list[Waiter]:
        return self.replicas.take_finished().answered


def test_a_write_is_answered_when_it_is_durable_here_and_not_before() -> None:
    it = Serving()
    waiter = it.wrote(Waiter((b"k",), None, 0))
    assert it.answered() == []
    assert it.role.is_pending(b"k")

    it.turn(NOW)

    assert it.answered() == [waiter]
    assert not it.role.is_pending(b"k")
    assert it.role.may_be_lost(b"k")
    assert (it.role.acked, it.role.copy.majority, it.role.copy.answered) == (0, 0, 1)


def test_it_is_also_answered_when_a_quorum_has_it_before_our_own_disk() -> None:
    it = Serving()
    waiter = it.wrote(Waiter((b"k",), None, 0))
    it.replicas.flush(NOW)
    it.acked("b", 1)
    it.acked("c", 1)

    assert it.answered() == [waiter]
    assert not it.role.may_be_lost(b"k")


def test_without_the_lease_it_waits_for_a_quorum_or_for_the_lease() -> None:
    it = Serving()
    waiter = it.wrote(Waiter((b"k",), None, 0))
    it.turn(LATER)
    assert it.answered() == []
    it.lease(LATER)
    assert it.replicas.look_ms <= LATER.boot_ms

    it.replicas.tick(LATER)

    assert it.answered() == [waiter]


def test_the_tick_that_finds_the_lease_back_is_not_overlooked() -> None:
    it = Serving()
    it.wrote(Waiter((b"k",), None, 0))
    it.turn(LATER)
    it.replicas.tick(LATER)

    assert it.replicas.look_ms <= LATER.boot_ms


def test_while_no_quorum_follows_for_long_it_waits_for_one() -> None:
    it = Serving()
    for number in range(3):  # a quorum hangs, but grants its lease
        now = Now(0, NOW.boot_ms + number * (ALONE_MAX_MS // 2))
        it.lease(now)
        it.wrote(Waiter((b"k",), None, 0))
        it.turn(now)
    assert len(it.answered()) == 2
    assert it.role.waiters

    it.acked("b", 3)

    assert len(it.answered()) == 1
    later = Now(0, now.boot_ms + 1)
    waiter = it.wrote(Waiter((b"k",), None, 0))
    it.turn(later)
    assert it.answered() == [waiter]


def test_a_step_of_a_transaction_waits_for_a_quorum_and_its_keys_only_for_us() -> None:
    it = Serving()
    telling = it.wrote(Telling((b"k",), 0, "b", None))
    it.turn(NOW)
    (twin,) = it.answered()
    assert isinstance(twin, Clientless)
    assert not it.role.is_pending(b"k")
    assert it.role.may_be_lost(b"k")

    it.acked("b", 1)

    assert it.answered() == [telling]
    assert not it.role.may_be_lost(b"k")


def test_what_is_undone_is_answered_to_nobody() -> None:
    it = Serving()
    telling, waiter = it.wrote(Telling((b"k",), 0, "b", None)), it.wrote(Waiter((b"l",), None, 0))

    undone = it.role.take_undone(0)

    assert {telling, waiter} < {*undone}
    assert not it.role.waiters
    assert not it.role.lasting


def test_another_write_mode_counts_for_what_is_not_answered_yet() -> None:
    it = Serving()
    it.replicas.set_record(msgspec.structs.replace(ZONE, write_mode=WriteMode.FULL_SYNC))
    waiter = it.wrote(Waiter((b"k",), None, 0))
    it.turn(NOW)
    it.acked("b", 1)
    assert it.answered() == []

    it.replicas.set_record(ZONE)

    assert it.answered() == [waiter]


def test_a_step_of_a_transaction_waits_for_a_quorum_whatever_becomes_of_the_write_mode() -> None:
    it = Serving()
    full = msgspec.structs.replace(ZONE, write_mode=WriteMode.FULL_SYNC)
    it.replicas.set_record(full)
    telling = it.wrote(Telling((b"k",), 0, "b", None))
    it.turn(NOW)
    it.replicas.set_record(ZONE)
    assert telling not in it.answered()
    it.replicas.set_record(full)
    assert it.role.may_be_lost(b"k"), "that it was answered proves nothing"
    it.replicas.set_record(ZONE)

    it.acked("b", 1)

    assert telling in it.answered()


def test_another_isolation_timeout_holds_at_once() -> None:
    it = Serving()
    it.leases.set_contact(NOW.boot_ms)
    before = it.role.serving_until
    it.replicas.set_record(msgspec.structs.replace(ZONE, isolation_ms=500))
    assert it.role.serving_until == NOW.boot_ms + 500 < before
    waiter = it.wrote(Waiter((b"k",), None, 0))
    it.turn(Now(0, NOW.boot_ms + 500))
    it.replicas.tick(Now(0, NOW.boot_ms + 550))
    assert it.answered() == []

    it.leases.set_contact(NOW.boot_ms + 550)
    it.replicas.contact_renewed(Now(0, NOW.boot_ms + 600))

    assert it.answered() == [waiter]


def test_what_a_quorum_holds_since_the_isolation_counts_when_it_is_over() -> None:
    it = Serving()
    it.replicas.set_record(msgspec.structs.replace(ZONE, isolation_ms=500))
    it.leases.set_contact(NOW.boot_ms)
    it.wrote(Waiter((b"k",), None, 0))
    it.turn(NOW)
    it.replicas.receive("b", Acks("uid", ((0, 3, 1),)), Now(0, NOW.boot_ms + 600))
    assert it.role.acked == 0

    it.leases.set_contact(NOW.boot_ms + 600)
    it.replicas.contact_renewed(Now(0, NOW.boot_ms + 650))

    assert it.role.acked == 1


def test_a_key_that_was_removed_may_be_watched_before_others_have_heard_of_it() -> None:
    it = Serving()
    it.wrote(Waiter((b"k",), None, 0))
    it.role.write(((b"k", None, 0),))
    it.role.wait(Waiter((b"k",), None, 0))
    it.turn(NOW)
    view = View()
    view.copy, view.now_ms = it.role.copy, NOW.wall_ms
    watched = {b"k": seen(view, b"k")}
    execution = Execution([], watched, NoPlain(monotonic))
    assert isinstance(execution.answers(view), list)

    it.role.write(((b"k", b"v", 0),))
    it.role.write(((b"k", None, 0),))

    assert not isinstance(execution.answers(view), list)


# --- what is announced ---------------------------------------------------------------------------

MANY = msgspec.structs.replace(ZONE, partitions=8)


def losses(world: LoneMaster) -> list[str]:
    return world.said(Reason.DATA_LOSS_ACCEPTED)


def led_by(world: LoneMaster, node: str) -> list[int]:
    rows = world.rows(MANY)
    return [p for p, row in rows.items() if row.primary is not None and row.primary.node == node]


def test_a_lost_primary_is_announced_once_with_its_partitions() -> None:
    world = LoneMaster(MANY)
    world.pass_time(3_000)
    assert losses(world) == []
    lost = led_by(world, "a")
    world.kill("a")
    world.pass_time(5_000)

    (told,) = losses(world)

    named = ", ".join(map(str, lost))
    assert told.startswith(f"{len(lost)} partitions ({named}) change their primary without a hand-")
    assert "(a > " in told


def test_a_drained_agent_hands_over_and_nothing_is_announced() -> None:
    world = LoneMaster(MANY, nodes=("a", "b", "c", "d"))
    world.pass_time(3_000)
    world.master.drain("a", True, world.now)
    world.wait(lambda: not led_by(world, "a"))
    assert losses(world) == []


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 0),
        ({"sync_writes": SyncWrites.INTERVAL}, 1),
        ({"write_mode": WriteMode.FULL_SYNC, "sync_writes": SyncWrites.INTERVAL}, 0),
    ],
)
def test_a_new_process_over_the_same_store_has_all_unless_its_machine_lost_power(
    change: dict[str, object], count: int
) -> None:
    world = LoneMaster(msgspec.structs.replace(MANY, **change))
    world.pass_time(3_000)
    row = world.rows(MANY)[led_by(world, "a")[0]]
    after = activated(row, Holder("a", "store-a", 2), frozenset())
    zone = world.master.zones["uid"]

    zone._events.look_at_primaries({row.partition: (after, Why(Cause.TAKEN_OVER, ("", "a")))})
    world.write()

    assert len(losses(world)) == count
