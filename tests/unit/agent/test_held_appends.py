"""Long updates of other agents that come while partitions wait for long values."""

from quorate.protocol.messages.replication import Append, Batch
from quorate_agent.zones.held_appends import LONG_BYTES, HeldAppends


def _batch(number: int, size: int = 10, partition: int = 0) -> Batch:
    return Batch(partition, 1, number, 0, 0, (bytes(size),))


def _append(number: int, size: int = 10, zone: str = "z", partition: int = 0) -> Append:
    return Append(zone, (_batch(number, size, partition),))


def _passes(held: HeldAppends, node: str, message: Append) -> bool:
    passes = held.hold(node, message)
    assert passes in (message, None)
    return passes is not None


def test_nothing_is_held_while_no_turn_goes_on() -> None:
    held = HeldAppends()

    assert _passes(held, "b", _append(1, LONG_BYTES + 1))
    assert held.turn_ended([]) == []


def test_long_ones_wait_with_what_their_agent_says_of_the_same_partition_behind_them() -> None:
    held = HeldAppends()
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
    held = HeldAppends()
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
    held = HeldAppends()
    held.turn_ended(["z"])
    long = _append(2, LONG_BYTES + 1, partition=4)
    held.hold("b", long)
    batches = (_batch(1, partition=3), _batch(3, partition=4), _batch(1, partition=5))

    passes = held.hold("b", Append("z", batches))

    assert passes == Append("z", (batches[0], batches[2]))
    assert held.turn_ended([]) == [("b", long)]
    assert held.turn_ended([]) == [("b", Append("z", (batches[1],)))]


def test_what_came_on_a_link_that_is_lost_is_forgotten() -> None:
    held = HeldAppends()
    held.turn_ended(["z"])
    long = _append(1, LONG_BYTES + 1)
    assert not _passes(held, "b", long)
    assert not _passes(held, "c", long)

    held.peer_down("b")

    assert _passes(held, "b", _append(1))  # it is what the next link begins with
    assert held.turn_ended([]) == [("c", long)]
