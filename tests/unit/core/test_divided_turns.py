"""Partitions whose long values are on their way wait; the others' turn ends without them."""

import msgspec

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.replication import Acks, Append, Batch, Fence, Sync, Update
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Operation
from quorate_sim.disk import Image, SimStorage

ZONE = ZoneRecord("uid-1", "books", 2, 3)
NOW = Now(100_000, 100_000)
TERM = 3
KEY = b"k"


def _holder(node: str) -> Holder:
    return Holder(node, f"store-{node}", 1)


def _follower() -> tuple[Replicas, SimStorage]:
    """Agent a, whose copies of both partitions follow b."""
    storage, settings = SimStorage(Image()), ProtocolSettings()
    replicas = Replicas(ZONE, _holder("a"), storage, Leases(settings, 1, 0), settings, NOW)
    replicas.set_members([NodeRecord(n, f"store-{n}", 1, n, 1, n) for n in "abc"])
    voters = tuple(Voter(node, f"store-{node}") for node in "abc")
    for partition in (0, 1):
        row = PartitionRow(partition, TERM, TERM, _holder("b"), ("b", "a", "c"), voters)
        replicas.set_rows([row], NOW)
        replicas.receive("b", Fence("uid-1", partition, TERM, _holder("b")), NOW)
        lineage = Lineage(0, 0, (Entry(TERM, 1),))
        replicas.receive("b", Sync("uid-1", partition, TERM, lineage, 0), NOW)
    _durable(replicas, storage, replicas.flush(NOW))
    return replicas, storage


def _durable(replicas: Replicas, storage: SimStorage, turn: Turn) -> list[tuple[int, int, int]]:
    """What is acknowledged when all that is written by now is durable."""
    storage.sync()
    said = replicas.synced(turn, NOW)
    return [entry for _, each in said if isinstance(each, Acks) for entry in each.entries]


def _append(replicas: Replicas, partition: int, counter: int) -> None:
    batch = _update(counter, ((b"k%d" % counter, b"value", 0),), partition)
    replicas.receive("b", Append("uid-1", (batch,)), NOW)


def _update(counter: int, operations: tuple[Operation, ...], partition: int = 0) -> Batch:
    update = Update(counter, TERM, operations)
    return Batch(partition, TERM, counter, 0, 0, (msgspec.msgpack.encode(update),))


def test_only_what_does_not_wait_is_written_durable_and_acknowledged() -> None:
    replicas, storage = _follower()
    _append(replicas, 0, 1)
    _append(replicas, 1, 1)
    replicas.copies[0].save()

    turn = replicas.flush_some({0}, NOW)

    assert turn is not None
    assert not replicas.wants_turn  # else the loop would spin until the value is there
    assert _durable(replicas, storage, turn) == [(1, TERM, 1)]
    assert storage.durable.logs[1].keys() == {(1, TERM)}
    assert not storage.durable.logs.get(0)
    assert [replicas.copies[each].durable_lwm for each in (0, 1)] == [0, 1]

    _append(replicas, 0, 2)  # behind what waits
    again = replicas.flush_some({0}, NOW)
    assert again is not None
    assert _durable(replicas, storage, again) == []
    assert not again.wrote
    last = replicas.flush(NOW)

    assert _durable(replicas, storage, last) == [(0, TERM, 2)]
    assert storage.durable.logs[0].keys() == {(1, TERM), (2, TERM)}
    assert not replicas.has_turn
    replicas.check()


def test_a_copy_s_record_is_written_with_its_rows() -> None:
    replicas, storage = _follower()
    before = dict(storage.durable.records)
    _append(replicas, 0, 1)
    _append(replicas, 1, 1)
    for copy in replicas.copies.values():
        copy.save()

    turn = replicas.flush_some({0}, NOW)
    assert turn is not None
    _durable(replicas, storage, turn)

    changed = [name for name, data in storage.durable.records.items() if before[name] != data]
    assert changed == [b"c00001"]


def test_a_turn_that_says_something_else_is_not_divided() -> None:
    replicas, storage = _follower()
    _append(replicas, 0, 1)
    _append(replicas, 1, 1)
    replicas.receive("b", Fence("uid-1", 1, TERM, _holder("b")), NOW)  # it is promised again

    assert replicas.flush_some({0}, NOW) is None

    turn = replicas.flush(NOW)
    assert len(_durable(replicas, storage, turn)) == 2


def test_no_room_for_the_others_leaves_what_waits() -> None:
    replicas, storage = _follower()
    _append(replicas, 0, 1)
    _append(replicas, 1, 1)
    storage.refuse = True

    turn = replicas.flush_some({0}, NOW)

    assert turn is not None
    assert _durable(replicas, storage, turn) == []
    assert [replicas.copies[each].lwm for each in (0, 1)] == [1, 0]
    assert _durable(replicas, storage, replicas.flush(NOW)) == [(0, TERM, 1)]


def test_what_a_survey_passed_in_a_turn_that_is_not_written_is_surveyed_again() -> None:
    """It saw the rows of that turn: those that come back may be tombstones."""
    replicas, storage = _follower()
    copy = replicas.copies[0]
    row = _update(1, ((KEY, None, 0),))
    replicas.receive("b", Append("uid-1", (row,)), NOW)
    _durable(replicas, storage, replicas.flush(NOW))
    copy.tombstones.clear()
    replicas.survey(copy)
    replicas.receive("b", Append("uid-1", (_update(2, ((KEY, b"for good", 0),)),)), NOW)
    _surveyed(replicas)
    assert not copy.tombstones

    storage.refuse = True
    replicas.flush(NOW)

    assert 0 in replicas.surveys
    _surveyed(replicas)
    assert copy.tombstones == {KEY: 1}


def test_what_a_survey_passed_in_a_turn_that_is_written_is_not() -> None:
    replicas, storage = _follower()
    _append(replicas, 0, 1)
    replicas.survey(replicas.copies[0])
    _surveyed(replicas)

    replicas.flush(NOW)
    _append(replicas, 0, 2)
    storage.refuse = True
    replicas.flush(NOW)

    assert not replicas.surveys


def _surveyed(replicas: Replicas) -> None:
    while replicas.surveys:
        replicas.upkeep._survey()
