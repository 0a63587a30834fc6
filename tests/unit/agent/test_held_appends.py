"""Long updates of other agents that come while partitions wait for long values."""

import msgspec

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.replication import Append, Batch, Fence, Sync, Update
from quorate.protocol.messages.transfer import FetchUpdates, Updates
from quorate.protocol.settings import DEFAULTS
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.zones.held_appends import BATCH_BYTES, HeldAppends
from quorate_sim.disk import Image, SimStorage


def _batch(number: int, size: int = 10, partition: int = 0) -> Batch:
    return Batch(partition, 1, number, 0, 0, (bytes(size),))


def _append(number: int, size: int = 10, zone: str = "z", partition: int = 0) -> Append:
    return Append(zone, (_batch(number, size, partition),))


def _passes(held: HeldAppends[str], link: str, message: Append) -> bool:
    passes = held.hold(link, message)
    assert passes in (message, None)
    return passes is not None


def test_nothing_is_held_while_no_turn_goes_on() -> None:
    held = HeldAppends[str]()

    assert _passes(held, "b", _append(1, LONG_BYTES + 1))
    assert held.turn_ended([]) == []


def test_long_ones_wait_with_what_their_agent_says_of_the_same_partition_behind_them() -> None:
    held = HeldAppends[str]()
    held.turn_ended(["z"])
    long, small = _append(2, LONG_BYTES + 1), _append(3)
    assert _passes(held, "b", _append(1))
    assert not _passes(held, "b", long)
    assert not _passes(held, "b", small)
    assert _passes(held, "c", small)
    assert _passes(held, "b", _append(1, partition=1))
    assert _passes(held, "b", _append(1, LONG_BYTES + 1, "another zone"))

    assert held.turn_ended(["z"]) == []
    assert not _passes(held, "c", long)
    assert held.turn_ended(["another zone"]) == [("b", long)]
    assert held.turn_ended(["z"]) == []  # it is being written
    assert held.turn_ended([]) == [("b", small), ("c", long)]
    assert not held

    assert _passes(held, "b", small)
    assert held.turn_ended([]) == []


def test_behind_one_that_was_taken_the_order_is_kept() -> None:
    held = HeldAppends[str]()
    held.turn_ended(["z"])
    long = _append(1, LONG_BYTES + 1)
    small = [_append(2), _append(3)]
    for message in (long, _append(1, LONG_BYTES + 1, partition=1), small[0]):
        assert not _passes(held, "b", message)

    assert held.turn_ended([]) == [("b", long)]
    assert not _passes(held, "b", small[1])  # before the next turn ends

    assert len(held.turn_ended([])) == 1
    assert held.turn_ended([]) == [("b", small[0]), ("b", small[1])]


def test_of_one_message_only_the_partitions_that_wait_are_held() -> None:
    held = HeldAppends[str]()
    held.turn_ended(["z"])
    long = _append(2, LONG_BYTES + 1, partition=4)
    held.hold("b", long)
    batches = (_batch(1, partition=3), _batch(3, partition=4), _batch(1, partition=5))

    passes = held.hold("b", Append("z", batches))

    assert passes == Append("z", (batches[0], batches[2]))
    assert held.turn_ended([]) == [("b", long)]
    assert held.turn_ended([]) == [("b", Append("z", (batches[1],)))]


def test_what_came_on_a_link_that_is_lost_is_forgotten() -> None:
    held = HeldAppends[str]()
    held.turn_ended(["z"])
    long = _append(1, LONG_BYTES + 1)
    assert not _passes(held, "b", long)
    assert not _passes(held, "c", long)

    held.link_down("b")

    assert _passes(held, "b", _append(1))  # it is what the next link begins with
    assert held.turn_ended([]) == [("c", long)]


def test_no_more_is_held_than_the_bound_allows_in_all_zones_together() -> None:
    size = LONG_BYTES + 1
    held = HeldAppends[str](2 * (size + BATCH_BYTES))
    held.turn_ended(["y", "z"])
    long = [_append(number, size, zone) for number in range(1, 4) for zone in "yz"]
    for message in long:
        assert not _passes(held, "b", message)
    assert held.bytes == 2 * (size + BATCH_BYTES)

    assert not _passes(held, "b", _append(4, zone="y"))  # nor small ones behind them

    assert held.turn_ended([]) == [("b", long[0]), ("b", long[1])]
    assert held.bytes == 0
    assert not held


def test_what_one_link_brought_leaves_its_room_to_the_others() -> None:
    size = LONG_BYTES + 1
    held = HeldAppends[str](size)
    held.turn_ended(["z"])
    assert not _passes(held, "b", _append(1, size))
    held.link_down("b")

    assert held.bytes == 0
    assert not _passes(held, "c", _append(1, size))
    assert held.bytes == size + BATCH_BYTES


def test_a_copy_fetches_what_was_not_held_for_it() -> None:
    copies = _follower()
    updates = [_encoded(number) for number in range(1, 7)]
    held = HeldAppends[str](2 * (len(updates[0]) + BATCH_BYTES))
    held.turn_ended(["z"])
    for number, update in enumerate(updates, 1):
        assert held.hold("b", Append("z", (Batch(0, 1, number, 0, 0, (update,)),))) is None
    now = Now(1_000, 1_000)
    while taken := held.turn_ended([]):
        for node, message in taken:
            copies.receive(node, message, now)
            copies.flush(now)
    assert copies.copies[0].lwm == 2

    told = held.hold("b", Append("z", (Batch(0, 1, 6, 0, 0, ()),)))  # b repeats its position
    assert told is not None
    copies.receive("b", told, now)
    asked: list[FetchUpdates] = []
    for at in range(1_000, 1_200 + DEFAULTS.repair_ms, 100):
        copies.tick(Now(at, at))
        sends = copies.flush(Now(at, at)).sends
        asked += [message for _, message in sends if isinstance(message, FetchUpdates)]
    assert [each.ranges for each in asked] == [((3, 6),)]
    copies.receive("b", Updates("z", 0, 1, tuple(updates[2:]), 0), now)

    assert copies.copies[0].lwm == 6


def _encoded(counter: int) -> bytes:
    rows = ((b"k%d" % counter, bytes(LONG_BYTES), 0),)
    return msgspec.msgpack.encode(Update(counter, 1, rows))


def _follower() -> Replicas:
    """The copies of agent a, which follow b."""
    now, a, b = Now(0, 0), Holder("a", "s-a", 1), Holder("b", "s-b", 1)
    record = ZoneRecord("z", "books", 1, 2)
    copies = Replicas(record, a, SimStorage(Image()), Leases(DEFAULTS, 1, 0), DEFAULTS, now)
    copies.set_members([NodeRecord(n, f"s-{n}", 1, n, 1, n) for n in "ab"])
    voters = (Voter("a", "s-a"), Voter("b", "s-b"))
    copies.set_rows([PartitionRow(0, 1, 1, b, ("b", "a"), voters)], now)
    copies.receive("b", Fence("z", 0, 1, b), now)
    copies.receive("b", Sync("z", 0, 1, Lineage(0, 0, (Entry(1, 1),)), 0), now)
    copies.flush(now)
    return copies


def test_no_more_is_held_than_fits_but_one_of_any_length() -> None:
    long = _append(1, LONG_BYTES + 1)
    size = LONG_BYTES + 1 + BATCH_BYTES
    for room, count in ((2 * size - 1, 1), (2 * size, 2), (1, 1)):
        held = HeldAppends(room)
        held.turn_ended(["z"])
        for _ in range(3):
            held.hold("b", long)

        assert held.bytes == count * size
