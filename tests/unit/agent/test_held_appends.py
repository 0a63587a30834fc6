"""Long updates of other agents that come while a turn goes on."""

from quorate.protocol.messages import Append, Batch
from quorate_agent.held_appends import LONG_BYTES, HeldAppends


def _append(number: int, size: int = 10, zone: str = "z") -> Append:
    return Append(zone, (Batch(0, 1, number, 0, 0, (bytes(size),)),))


def test_nothing_is_held_while_no_turn_goes_on() -> None:
    held = HeldAppends()

    assert not held.hold("b", _append(1, LONG_BYTES + 1))
    assert held.turn_ended([]) == []


def test_long_ones_wait_for_the_turn_with_all_that_their_agent_sends_behind_them() -> None:
    held = HeldAppends()
    held.turn_ended(["z"])
    long, small = _append(2, LONG_BYTES + 1), _append(3)
    assert not held.hold("b", _append(1))
    assert held.hold("b", long)
    assert held.hold("b", small)
    assert not held.hold("c", small)
    assert not held.hold("b", _append(1, LONG_BYTES + 1, "another zone"))

    assert held.turn_ended(["z"]) == []
    assert held.hold("c", long)
    assert held.turn_ended(["another zone"]) == [("b", long), ("b", small), ("c", long)]

    assert not held.hold("b", small)
    assert held.turn_ended([]) == []


def test_what_came_on_a_link_that_is_lost_is_forgotten() -> None:
    held = HeldAppends()
    held.turn_ended(["z"])
    long = _append(1, LONG_BYTES + 1)
    assert held.hold("b", long)
    assert held.hold("c", long)

    held.peer_down("b")

    assert not held.hold("b", _append(1))  # it is what the next link begins with
    assert held.turn_ended([]) == [("c", long)]
