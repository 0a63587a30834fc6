"""When keys of a copy expire: each key has one time, however often it is written."""

import pytest

from quorate.facts.keyspace import RESERVED
from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.expiries import SUPERSEDED_MAX, Expiries
from quorate_agent.storage.memory import MemoryStorage

TERM = 3
NOW = 1_000_000
KEY = b"session"
MANY = 20 * SUPERSEDED_MAX


def primary() -> Copy:
    copy = Copy(0, MemoryStorage(0))
    copy.promise(TERM, Holder("a1", "s1", 1))
    copy.adopt(Lineage(0, 0, (Entry(TERM, 1),)), 0, {})
    copy.save()
    return copy


def taken(expiries: Expiries, now_ms: int = NOW, most: int = 1 << 30) -> list[tuple[int, bytes]]:
    return list(expiries.take(now_ms, most))


def test_a_key_whose_time_is_put_off_again_and_again_takes_the_room_of_few() -> None:
    """As that of a session, with each request."""
    copy = primary()
    for number in range(MANY):
        copy.write(((KEY, b"%d" % number, NOW + number),))
        copy.written()

    assert copy.expiring.due == {KEY: NOW + MANY - 1}
    assert len(copy.expiring.heap) <= SUPERSEDED_MAX + 2
    assert taken(copy.expiring, NOW + MANY - 2) == []
    assert taken(copy.expiring, NOW + MANY - 1) == [(NOW + MANY - 1, KEY)]
    assert copy.expiring.heap == []


def test_a_key_that_is_changed_and_keeps_its_time_is_noted_once() -> None:
    """As that of a rate limiter."""
    copy = primary()
    for number in range(100):
        copy.write(((KEY, b"%d" % number, NOW),))

    assert copy.expiring.heap == [(NOW, KEY)]


@pytest.mark.parametrize("value", [b"for good", None], ids=["SET", "DEL"])
def test_keys_that_expire_no_more_are_forgotten(value: bytes | None) -> None:
    copy = primary()
    for number in range(MANY):
        key = b"%d" % number
        copy.write(((key, b"v", NOW + number),))
        copy.write(((key, value, 0),))
        copy.written()

    assert copy.expiring.due == {}
    assert len(copy.expiring.heap) <= SUPERSEDED_MAX
    assert taken(copy.expiring, NOW + MANY) == []


def test_a_time_that_is_chosen_anew_counts_once() -> None:
    expiries = Expiries()
    for _ in range(MANY):
        expiries.note(KEY, NOW + 1)
        expiries.note(KEY, NOW)

    assert len(expiries.heap) <= SUPERSEDED_MAX + 2
    assert taken(expiries) == [(NOW, KEY)]
    assert taken(expiries, NOW + 1) == []


def test_a_turn_looks_at_so_many_times_also_of_keys_that_were_put_off() -> None:
    expiries = Expiries()
    for number in range(SUPERSEDED_MAX):
        expiries.note(KEY, NOW - SUPERSEDED_MAX + number)
    expiries.note(b"other", NOW)

    assert taken(expiries, most=600) == []
    assert taken(expiries, most=600) == [(NOW - 1, KEY), (NOW, b"other")]


def test_a_flush_leaves_the_times_of_reserved_keys() -> None:
    copy, reserved = primary(), RESERVED + b"reply"
    copy.write(((KEY, b"v", NOW), (reserved, b"r", NOW + 1)))
    copy.written()

    copy.write(((None, None, 0),))

    assert copy.expiring.due == {reserved: NOW + 1}
    assert copy.expiring.reserved == {reserved}
    copy.recover()
    assert copy.expiring.due == {reserved: NOW + 1, KEY: NOW}


@pytest.mark.parametrize("at_ms", [0, NOW - 5, NOW + 5])
def test_a_turn_that_is_not_written_leaves_the_time_from_before_it(at_ms: int) -> None:
    copy = primary()
    copy.write(((KEY, b"v", NOW),))
    copy.written()
    copy.write(((KEY, b"w", at_ms),))
    copy.write(((KEY, b"x", NOW + 7),))

    copy.recover()

    assert taken(copy.expiring, NOW - 1) == []
    assert taken(copy.expiring) == [(NOW, KEY)]


def test_what_expired_in_a_turn_that_is_not_written_expires_again() -> None:
    copy = primary()
    copy.write(((KEY, b"v", NOW),))
    copy.written()
    copy.expired += taken(copy.expiring)
    copy.write(((KEY, None, 0),))
    copy.write(((KEY, b"w", NOW + 9),))

    copy.recover()

    assert taken(copy.expiring) == [(NOW, KEY)]
