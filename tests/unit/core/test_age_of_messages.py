"""How old at most a message is, by the clock of the one alone who receives it."""

from quorate.facts.time import Now
from quorate.protocol.copies.leases import ASKED_MAX, Leases
from quorate.protocol.settings import DEFAULTS


def _leases() -> Leases:
    return Leases(DEFAULTS, 1, 0)


def test_a_message_can_name_the_newest_heartbeat_of_its_receiver() -> None:
    sender, receiver = _leases(), _leases()
    assert sender.heard("b") == 0
    for at in (1_000, 1_400):
        sender.answer("b", receiver.heartbeat("a", Now(0, at)), Now(0, 77))
    assert sender.heard("b") == 1_400
    assert receiver.sent_heartbeat("a", 1_400)
    assert not receiver.sent_heartbeat("c", 1_400)

    sender.restarted("b")  # the clock of the next process may be another machine's
    assert sender.heard("b") == 0
    assert not _leases().sent_heartbeat("a", 1_400)


def test_heartbeats_are_known_for_as_long_as_anybody_waits_for_an_answer() -> None:
    leases = _leases()
    for number in range(ASKED_MAX + 1):
        leases.heartbeat("a", Now(0, 1_000 + number))
    assert [leases.sent_heartbeat("a", 1_000 + n) for n in (0, 1, ASKED_MAX)] == [False, True, True]
    assert ASKED_MAX * DEFAULTS.heartbeat_ms > 2 * DEFAULTS.park_bound_ms
