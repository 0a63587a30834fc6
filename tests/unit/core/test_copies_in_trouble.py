"""One agent's copies when answers are lost, late or refused: nothing acknowledged goes astray."""

from dataclasses import dataclass, field

import msgspec
import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow, Reset
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent import turn as turn_module
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.reports import inventory
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.master import Activated, Inventory, RowsStored
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import (
    Acks,
    Append,
    Batch,
    Fence,
    FenceAck,
    HeartbeatAck,
    Sync,
    Update,
)
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Updates,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Row
from quorate.protocol.transactions.parts import Telling
from quorate_sim.disk import Image, SimStorage

ZONE = ZoneRecord("uid-1", "books", 1, 3)
VOTERS = tuple(Voter(node, f"store-{node}") for node in "abc")
OLD = Lineage(0, 0, (Entry(3, 1),))
_raw = msgspec.msgpack.Encoder().encode


def _holder(node: str, incarnation: int = 1) -> Holder:
    return Holder(node, f"store-{node}", incarnation)


def _row(version: int, primary: str, term: int | None = None) -> PartitionRow:
    others = tuple(node for node in "abc" if node != primary)
    return PartitionRow(
        0, version, version if term is None else term, _holder(primary), (primary, *others), VOTERS
    )


def _update(term: int, counter: int, key: bytes, value: bytes) -> bytes:
    return _raw(Update(counter, term, ((key, value, 0),)))


def _nodes(incarnation_of_b: int = 1) -> list[NodeRecord]:
    return [
        NodeRecord(n, f"store-{n}", incarnation_of_b if n == "b" else 1, n, 1, n) for n in "abc"
    ]


@dataclass
class Agent:
    """Agent `name` with its copies; every turn is ended, and durable, by `end`."""

    name: str
    boot_ms: int = 100_000
    storage: SimStorage = field(default_factory=lambda: SimStorage(Image()))

    def __post_init__(self) -> None:
        settings = ProtocolSettings()
        self.leases = Leases(settings, 1, 0)
        self.replicas = Replicas(
            ZONE, _holder(self.name), self.storage, self.leases, settings, self.now
        )
        self.replicas.set_members(_nodes())

    @property
    def now(self) -> Now:
        return Now(self.boot_ms, self.boot_ms)

    def hear(self, node: str, message: Message) -> list[tuple[str, Message]]:
        self.replicas.receive(node, message, self.now)
        return self.end()

    def take(self, row: PartitionRow) -> list[tuple[str, Message]]:
        self.replicas.set_rows([row], self.now)
        return self.end()

    def end(self) -> list[tuple[str, Message]]:
        said: list[tuple[str, Message]] = []
        replicas = self.replicas
        while True:
            turn = replicas.flush(self.now)
            said += turn.sends
            said += replicas.synced(turn, self.now)
            replicas.check()
            if not (replicas.wrote or replicas.out.at_once or replicas.out.after_sync):
                return said

    def be_granted_leases(self) -> None:
        asked = self.leases.heartbeat("b", self.now)
        self.leases.granted("b", HeartbeatAck(asked.sent_ms, 2000, 1, ()))
        self.replicas.renew_own_leases()

    def wait(self, ms: int) -> list[tuple[str, Message]]:
        self.boot_ms += ms
        self.replicas.tick(self.now)
        return self.end()


def _backup_with(agent: Agent, *updates: bytes) -> None:
    """The copy has adopted term 3 of primary "c" and was sent `updates` of it."""
    agent.take(_row(3, "c"))
    agent.hear("c", Fence("uid-1", 0, 3, _holder("c")))
    agent.hear("c", Sync("uid-1", 0, 3, OLD, 0))
    agent.hear("c", Append("uid-1", (Batch(0, 3, 0, 0, 0, updates),)))


def _promise(node: str, term: int, lineage: Lineage, lwm: int) -> FenceAck:
    return FenceAck("uid-1", 0, term, f"store-{node}", lineage, lwm, (), 0, False)


def _stage(agent: Agent) -> Stage:
    return agent.replicas.roles[0].stage


def test_a_row_that_was_told_to_be_stored_is_known_after_a_restart_without_any_promise() -> None:
    """A lost metastore is rebuilt from what agents said that they have: none had such a row."""
    before = Agent("b")
    said = before.take(_row(3, "c"))
    assert [m.versions for _, m in said if isinstance(m, RowsStored)] == [((0, 3),)]

    after = Agent("b", storage=before.storage)

    (told,) = inventory(after.replicas, rows=True)
    assert (told.version, told.row) == (3, _row(3, "c"))
    after.take(_row(2, "a"))  # an older one changes nothing
    (told,) = inventory(after.replicas, rows=True)
    assert told.row == _row(3, "c")


def test_an_activation_whose_only_other_answer_is_forgotten_asks_again() -> None:
    agent = Agent("a")
    _backup_with(agent, _update(3, 1, b"k", b"1"))
    agent.take(_row(5, "a"))
    asked = agent.hear("b", _promise("b", 5, OLD, 2))
    assert _stage(agent) is Stage.GATHERING
    assert any(isinstance(message, FetchUpdates) for _, message in asked)

    agent.replicas.set_members(_nodes(incarnation_of_b=2))
    agent.wait(100)

    assert _stage(agent) is Stage.FENCING
    assert agent.replicas.copies[0].last_term == 3, "activated without what b may have answered"


def test_rows_fetched_for_an_older_history_are_not_used_for_a_newer_one() -> None:
    agent = Agent("a")
    _backup_with(agent, _update(3, 1, b"k", b"1"), _update(3, 2, b"k", b"2"))
    agent.take(_row(7, "a"))
    four = Lineage(0, 0, (Entry(3, 1), Entry(4, 2)))
    five = Lineage(0, 0, (Entry(3, 1), Entry(5, 2)))
    agent.hear("b", _promise("b", 7, four, 3))
    agent.hear("b", KeyRows("uid-1", 0, 7, 3, ((b"k", 2, 4, 0, b"of four"),)))
    asked = agent.hear("c", _promise("c", 7, five, 1))

    assert agent.replicas.roles[0].gathering.rows == {}
    agent.hear("b", KeyRows("uid-1", 0, 7, 3, ((b"k", 2, 4, 0, b"of four"),)))
    assert agent.replicas.roles[0].gathering.rows == {}
    asked += agent.wait(600)
    assert ("c", FetchKeys("uid-1", 0, 7, (b"k",))) in asked


def test_a_divergent_update_applied_while_filling_is_undone_as_well() -> None:
    """Held behind a gap, it follows as soon as the gap is closed."""
    agent = Agent("a")
    _backup_with(agent, _update(3, 1, b"k", b"1"), _update(3, 3, b"k", b"divergent"))
    new = Lineage(0, 0, (Entry(3, 1), Entry(5, 3)))
    agent.hear("b", Fence("uid-1", 0, 5, _holder("b")))
    agent.hear("b", Sync("uid-1", 0, 5, new, 2))
    asked = agent.hear("b", Updates("uid-1", 0, 5, (_update(3, 2, b"j", b"2"),), 0))

    assert ("b", FetchKeys("uid-1", 0, 5, (b"k",), adopted=True)) in asked
    said = agent.hear("b", KeyRows("uid-1", 0, 5, 2, ((b"k", 1, 3, 0, b"1"),)))
    copy = agent.replicas.copies[0]
    assert copy.get(b"k") == Row(1, 3, 0, b"1")
    assert (copy.lwm, copy.adopted) == (2, True)
    assert ("b", Acks("uid-1", ((0, 5, 2),))) in said


def test_a_copy_that_a_reset_left_is_set_aside_even_if_the_sync_is_earlier_than_the_row() -> None:
    agent = Agent("a")
    _backup_with(agent, _update(3, 1, b"k", b"only here"))
    sync = Sync("uid-1", 0, 5, Lineage(0, 0, (Entry(5, 1),)), 0, reset=5)
    agent.hear("b", Fence("uid-1", 0, 5, _holder("b")))
    assert agent.hear("b", sync) == []
    b, a = VOTERS[1], VOTERS[0]
    copying = Migration("m1", MigrationKind.COPY, None, _holder("a"), ("b", "a"), (b, a))
    agent.take(PartitionRow(0, 6, 5, _holder("b"), ("b",), (b,), copying, reset=Reset(5, (a,))))

    asked = agent.hear("b", sync)
    assert any(isinstance(message, FetchSnapshot) for _, message in asked)
    agent.hear("b", SnapshotChunk("uid-1", 0, 5, None, None, 0, 0, (), 1))

    copy = agent.replicas.copies[0]
    assert (copy.get(b"k"), copy.lwm, copy.adopted) == (None, 0, True)
    (aside,) = copy.kept_rows
    assert (aside.reset_term, aside.last_term, aside.lwm) == (5, 3, 1)


def test_a_late_piece_of_an_earlier_full_copy_is_not_mixed_in() -> None:
    agent = Agent("a")
    agent.take(_row(5, "b"))
    agent.hear("b", Fence("uid-1", 0, 5, _holder("b")))
    agent.hear("b", Sync("uid-1", 0, 5, Lineage(0, 0, (Entry(5, 9),)), 20))
    asked = agent.hear("b", Updates("uid-1", 0, 5, (), 8))
    assert any(isinstance(message, FetchSnapshot) for _, message in asked)
    agent.hear("b", SnapshotChunk("uid-1", 0, 5, None, b"m", 20, 0, ((b"m", 7, 5, 0, b""),), 1))
    agent.hear("b", SnapshotChunk("uid-1", 0, 5, b"m", None, 15, 0, (), 1))
    assert not agent.replicas.copies[0].adopted
    agent.hear("b", SnapshotChunk("uid-1", 0, 5, b"m", None, 20, 0, (), 1))
    assert agent.replicas.copies[0].adopted


def _serve(agent: Agent, term: int, others: Lineage, lwm: int) -> None:
    """Activate the agent over itself and "b", whose lease it then holds."""
    agent.hear("b", _promise("b", term, others, lwm))
    agent.hear("b", Acks("uid-1", ((0, term, lwm),)))
    agent.wait(3000)
    agent.be_granted_leases()
    assert agent.replicas.roles[0].serves(agent.boot_ms)


def test_a_write_undone_by_a_term_in_between_is_not_answered_by_the_next_one() -> None:
    """The rows in between never reached the agent, so it still waits for acknowledgements."""
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    role = agent.replicas.roles[0]
    role.write(((b"k", b"mine", 0),))
    agent.replicas.commands_wrote(role)
    waiter = Waiter((b"k",), None, 0)
    role.wait(waiter)
    agent.end()

    five = agent.replicas.copies[0].lineage
    five = Lineage(0, 0, (*five.entries, Entry(5, 1)))
    agent.take(_row(7, "a"))
    agent.hear("b", _promise("b", 7, five, 1))
    agent.hear("b", KeyRows("uid-1", 0, 7, 1, ((b"k", 1, 5, 0, b"theirs"),)))
    agent.hear("b", Updates("uid-1", 0, 7, (_update(5, 1, b"k", b"theirs"),), 0))
    agent.hear("b", Acks("uid-1", ((0, 7, 1),)))

    copy = agent.replicas.copies[0]
    assert copy.get(b"k") == Row(1, 5, 0, b"theirs")
    finished = agent.replicas.take_finished()
    assert (finished.unknown, finished.answered) == ([waiter], [])


def _cut_off_with(*waiters: Waiter) -> Agent:
    """A primary that has written "k" once for them all, and has seen that its lease has ended."""
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    agent.wait(100)
    role = agent.replicas.roles[0]
    role.write(((b"k", b"1", 0),))
    agent.replicas.commands_wrote(role)
    for waiter in waiters:
        role.wait(waiter)
    agent.end()
    agent.wait(agent.replicas.settings.lease_ms)
    assert not agent.replicas.roles[0].serves(agent.boot_ms)
    assert not any(agent.replicas.take_finished())
    return agent


def test_what_waits_at_a_primary_that_is_cut_off_is_given_up_and_its_keys_stay_pending() -> None:
    write, read = Waiter((b"k",), None, 0), Waiter((), None, 0)
    agent = _cut_off_with(write, read)
    role = agent.replicas.roles[0]
    agent.wait(agent.replicas.settings.park_bound_ms)
    finished = agent.replicas.take_finished()
    assert (finished.unknown, finished.again) == ([write], [read])
    assert role.is_pending(b"k")
    assert len(role.waiters) == 1
    agent.wait(1000)
    assert not any(agent.replicas.take_finished())

    agent.hear("b", Acks("uid-1", ((0, 3, 1),)))  # it was nobody else's meanwhile
    assert not role.is_pending(b"k")
    assert not role.waiters


def test_what_a_transaction_tells_is_not_given_up_with_clients() -> None:
    flush, telling = Waiter((None,), None, 0), Telling((b"k",), 0, "b", None)
    agent = _cut_off_with(flush, telling)
    agent.wait(agent.replicas.settings.park_bound_ms)
    assert agent.replicas.take_finished().unknown == [flush]
    role = agent.replicas.roles[0]
    assert role.is_pending(b"any")  # all keys are, of a flush

    agent.hear("b", Acks("uid-1", ((0, 3, 1),)))
    assert telling in agent.replicas.take_finished().answered
    assert not role.is_pending(b"any")


def test_nothing_is_given_up_where_the_lease_is_back_in_time() -> None:
    agent = _cut_off_with(Waiter((b"k",), None, 0))
    bound_ms = agent.replicas.settings.park_bound_ms
    agent.wait(bound_ms - 100)
    agent.be_granted_leases()
    agent.wait(100)
    agent.wait(bound_ms - 100)  # once more without
    assert not any(agent.replicas.take_finished())


def test_who_waits_when_the_lease_ends_once_more_is_given_up_then() -> None:
    agent = _cut_off_with(Waiter((b"k",), None, 0))
    bound_ms = agent.replicas.settings.park_bound_ms
    agent.wait(bound_ms)
    agent.replicas.take_finished()
    agent.be_granted_leases()
    agent.wait(100)
    late = Waiter((b"k",), None, 0)
    agent.replicas.roles[0].wait(late)
    agent.wait(agent.replicas.settings.lease_ms)
    agent.wait(bound_ms)
    assert agent.replicas.take_finished().unknown == [late]


def test_what_was_given_up_is_not_told_again_when_its_role_ends() -> None:
    write = Waiter((b"k",), None, 0)
    agent = _cut_off_with(write)
    agent.wait(agent.replicas.settings.park_bound_ms)
    assert agent.replicas.take_finished().unknown == [write]
    agent.take(_row(5, "c"))
    agent.wait(100)
    assert agent.replicas.primaries[0] is None
    assert not any(agent.replicas.take_finished())


def test_a_role_whose_voter_has_promised_another_ends_for_good() -> None:
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    late = _promise("b", 3, Lineage(), 0)
    agent.replicas.lease_moved("b", 0, 5)
    agent.hear("b", late)
    agent.be_granted_leases()
    assert agent.replicas.primaries[0] is None


def test_a_refused_turn_leaves_no_promise_and_no_role_behind() -> None:
    agent = Agent("a")
    agent.storage.refuse = True
    assert agent.take(_row(3, "a")) == []
    copy = agent.replicas.copies[0]
    assert (copy.promise_term, copy.version, copy.present) == (0, 0, False)
    assert agent.replicas.roles == {}

    agent.wait(600)  # the row is taken once there is room
    assert copy.promise_term == 3
    assert agent.replicas.roles[0].term == 3


def test_a_refused_turn_still_tells_the_master_what_is_there() -> None:
    agent = Agent("a")
    replicas = agent.replicas
    replicas.set_rows([_row(3, "a")], agent.now)
    replicas.out.send_durable("", Inventory("uid-1", inventory(replicas), last=False))
    agent.storage.refuse = True
    assert agent.end() == [("", Inventory("uid-1", (), last=False))]


def test_a_refused_turn_in_which_a_role_begins_to_serve_has_it_told_again() -> None:
    """The master gives up a primary that does not tell that it serves."""
    agent = Agent("a")
    agent.take(_row(3, "a"))
    agent.hear("b", _promise("b", 3, Lineage(), 0))
    agent.hear("b", Acks("uid-1", ((0, 3, 0),)))
    agent.storage.refuse = True
    agent.replicas.touch(agent.replicas.copies[0])
    said = agent.wait(3000)
    assert agent.replicas.roles[0].stage is Stage.SERVING
    assert not any(isinstance(message, Activated) for _, message in said)

    agent.storage.refuse = False
    said = agent.wait(100)
    assert any(isinstance(message, Activated) for _, message in said)


def test_nothing_of_a_refused_turn_is_supplied_to_others() -> None:
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    role = agent.replicas.roles[0]
    role.write(((b"k", b"refused", 0),))
    agent.replicas.commands_wrote(role)
    agent.storage.refuse = True
    said = agent.hear("b", FetchSnapshot("uid-1", 0, 3, None, 1 << 20))
    assert not any(isinstance(message, SnapshotChunk | Updates) for _, message in said)


def test_a_refused_turn_does_not_make_earlier_ones_durable() -> None:
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    role = agent.replicas.roles[0]
    role.write(((b"k", b"1", 0),))
    agent.replicas.commands_wrote(role)
    turn = agent.replicas.flush(agent.now)  # written, its sync goes on
    role.write(((b"k", b"2", 0),))
    agent.replicas.commands_wrote(role)
    agent.storage.refuse = True
    agent.replicas.flush(agent.now)
    copy = agent.replicas.copies[0]
    assert (copy.lwm, copy.durable_lwm) == (1, 0)
    agent.replicas.synced(turn, agent.now)
    assert copy.durable_lwm == 1


def _removed(counter: int, key: bytes) -> bytes:
    return _raw(Update(counter, 3, ((key, None, 0),)))


def _settled(agent: Agent, counter: int) -> None:
    """All copies have everything up to `counter`."""
    agent.hear("c", Append("uid-1", (Batch(0, 3, counter, counter, counter, ()),)))


def test_a_refused_turn_keeps_the_tombstones_that_it_was_to_purge() -> None:
    agent = Agent("a")
    _backup_with(agent, _removed(1, b"j"), _removed(2, b"k"))
    _settled(agent, 2)
    agent.storage.refuse = True
    agent.wait(100)
    copy = agent.replicas.copies[0]
    assert [key for key, _ in copy.space.scan(None, 10, 1 << 20)] == [b"j", b"k"]

    agent.storage.refuse = False
    agent.wait(100)

    assert copy.space.scan(None, 10, 1 << 20) == []


def test_a_refused_eviction_keeps_the_tombstones_of_the_copy() -> None:
    """A migration that begins before the eviction is tried again needs the copy."""
    agent = Agent("a")
    _backup_with(agent, _removed(1, b"k"))
    agent.storage.refuse = True
    without = PartitionRow(0, 4, 3, _holder("c"), ("c", "b"), VOTERS[1:])
    agent.take(without)
    back = Migration("back", MigrationKind.COPY, None, _holder("a"), ("c", "b", "a"), VOTERS)
    agent.take(msgspec.structs.replace(without, version=5, active=back))
    copy = agent.replicas.copies[0]
    assert (copy.lwm, copy.adopted) == (1, True)

    _settled(agent, 1)
    agent.wait(100)

    assert copy.space.scan(None, 10, 1 << 20) == []


def test_a_refused_turn_keeps_the_expiry_of_the_keys_that_it_was_to_remove() -> None:
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    role = agent.replicas.roles[0]
    role.write(((b"k", b"v", agent.now.wall_ms + 50),))
    agent.replicas.commands_wrote(role)
    agent.end()
    agent.storage.refuse = True
    agent.wait(100)
    assert (row := role.copy.get(b"k")) is not None
    assert row.value == b"v"

    agent.wait(100)

    assert (row := role.copy.get(b"k")) is None or row.value is None


def test_an_adoption_is_not_acknowledged_by_the_turn_before_it() -> None:
    agent = Agent("a")
    _backup_with(agent, _update(3, 1, b"k", b"1"))
    replicas = agent.replicas
    agent.hear("b", Fence("uid-1", 0, 5, _holder("b")))
    append = Append("uid-1", (Batch(0, 5, 2, 0, 0, (_update(5, 2, b"k", b"2"),)),))
    replicas.receive("b", append, agent.now)
    before = replicas.flush(agent.now)
    five = Lineage(0, 0, (Entry(3, 1), Entry(5, 2)))
    replicas.receive("b", Sync("uid-1", 0, 5, five, 2), agent.now)
    adopting = replicas.flush(agent.now)
    assert not any(isinstance(m, Acks) for _, m in replicas.synced(before, agent.now))
    assert any(isinstance(m, Acks) for _, m in replicas.synced(adopting, agent.now))


def test_a_copy_that_goes_takes_a_full_copy_along_that_ended_half_way() -> None:
    storage = SimStorage(Image())
    copy = Copy(0, storage)
    copy.set_row(_row(3, "c"))
    copy.promise(3, _holder("c"))
    copy.save()
    piece = storage.space(0, copy.generation + 1)
    piece.put(b"k", Row(30, 3, 0, b"of a history that was undone"))
    storage.commit()

    copy = Copy(0, storage)  # the process that was filling it is gone
    copy.recover()
    copy.evict(PartitionRow(0, 5, 5, _holder("c"), ("c",), (VOTERS[2],)))
    assert copy.promise(7, _holder("c"))  # and it is made here once more

    assert copy.space.scan(None, 10, 1 << 20) == []
    assert copy.space.digest() == 0


def test_a_delta_takes_a_full_copy_along_that_ended_half_way() -> None:
    storage = SimStorage(Image())
    copy = Copy(0, storage)
    copy.set_row(_row(3, "c"))
    copy.promise(3, _holder("c"))
    left = storage.space(0, copy.generation + 1)
    left.put(b"k", Row(30, 3, 0, b"x"))
    copy.adopt(OLD, 0, {})

    assert left.scan(None, 10, 1 << 20) == []


def test_updates_that_no_frame_would_take_together_travel_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_module, "APPEND_BYTES_MAX", 1000)
    agent = Agent("a")
    agent.take(_row(3, "a"))
    _serve(agent, 3, Lineage(), 0)
    role = agent.replicas.roles[0]
    for _ in range(3):
        role.write(((b"k", bytes(500), 0),))
        agent.replicas.commands_wrote(role)

    appends = [message for node, message in agent.end() if isinstance(message, Append)]

    sent = [[batch.updates for batch in message.batches] for message in appends]
    assert [len(updates) for batches in sent for updates in batches] == [1, 1, 1]
    assert [len(batches) for batches in sent] == [1, 1, 1]
    last = role.copy.lwm
    told = [batch.hwm for message in appends for batch in message.batches]
    assert told == [last - 2, last - 1, last]  # none tells of what is sent behind it
