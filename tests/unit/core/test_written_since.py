"""Whether an absent key was written and removed since a counter, with its tombstone or without."""

import msgspec
import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies import copy as copy_module
from quorate.protocol.copies.copy import Copy
from quorate.protocol.messages.replication import Update
from quorate.protocol.storage import Operation
from quorate_agent.storage.memory import MemoryStorage


def _take(into: Copy, *operations: Operation) -> None:
    update = Update(into.hwm + 1, 1, operations)
    into.reserve()
    into.keep(update, msgspec.msgpack.encode(update))


@pytest.fixture
def copy() -> Copy:
    """k came with counter 2 and went with 3; 1 and 4 are another's."""
    made = Copy(0, MemoryStorage(0))
    made.promise(1, Holder("a1", "s1", 1))
    made.adopt(Lineage(0, 0, (Entry(1, 1),)), 0, {})
    for key, value in ((b"o", b"x"), (b"k", b"x"), (b"k", None), (b"o", b"y")):
        _take(made, (key, value, 0))
    return made


def _answers(copy: Copy, key: bytes) -> list[bool]:
    return [copy.written_since({key: counter}) for counter in range(5)]


def test_a_tombstone_tells_when_its_key_went(copy: Copy) -> None:
    assert _answers(copy, b"k") == [True, True, True, False, False]
    assert _answers(copy, b"never") == [False] * 5


def test_without_the_tombstone_the_log_tells(copy: Copy) -> None:
    copy.settled = 4
    assert copy.purge_tombstones(100)
    assert _answers(copy, b"k") == [True, True, True, False, False]
    assert _answers(copy, b"never") == [False] * 5


def test_what_nothing_tells_has_been_written(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.majority = copy.settled = 4
    copy.purge_tombstones(100)
    copy.cut_log(2)
    assert _answers(copy, b"never") == [True, True, False, False, False]

    monkeypatch.setattr(copy_module, "LOOK_BACK_MAX", 1)
    assert _answers(copy, b"never") == [True, True, True, False, False]


def test_the_log_is_read_once_for_all_keys_whatever_their_counters(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.settled = 4
    copy.purge_tombstones(100)
    reads: list[tuple[int, ...]] = []
    log_read = copy.storage.log_read

    def note(*asked: int) -> list[tuple[int, int, bytes]]:
        reads.append(asked[1:3])
        return log_read(*asked)

    monkeypatch.setattr(copy.storage, "log_read", note)
    absent = {b"n%d" % number: number % 4 for number in range(100)}

    assert not copy.written_since(absent)
    assert not copy.written_since({**absent, b"k": 3})
    assert copy.written_since({**absent, b"k": 2})
    assert reads == [(1, 4)] * 3


def test_updates_of_many_bytes_are_not_searched(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.settled = 4
    of_two = copy.storage.log_bytes(0, 3)

    monkeypatch.setattr(copy_module, "LOOK_BACK_BYTES_MAX", of_two)
    assert _answers(copy, b"never") == [True, True, False, False, False]


def test_a_flush_touches_no_key_that_is_absent(copy: Copy) -> None:
    for operation in ((b"between", b"x", 0), (None, None, 0)):
        _take(copy, operation)
    assert _answers(copy, b"never") == [False] * 5
    assert _answers(copy, b"k") == [True, True, True, False, False]
    assert _answers(copy, b"between") == [True] * 5
    _take(copy, (b"between", b"x", 0), (b"never", b"x", 0))
    _take(copy, (None, None, 0))
    assert copy.written_since({b"never": 6})
    assert not copy.written_since({b"never": 7})


def test_a_key_that_is_deleted_again_and_again_is_noted_once(copy: Copy) -> None:
    """As that of a lock, while a voter is away for hours: none of its tombstones may go."""
    keys = [b"%d" % number for number in range(7)]
    for number in range(300):
        key = keys[number % len(keys)]
        _take(copy, (key, b"held", 0))
        _take(copy, (key, None, 0))

    assert {*copy.tombstones} == {b"k", *keys}
    counters = [*copy.tombstones.values()]
    assert counters == sorted(counters)
    copy.settled = copy.lwm - 1
    assert copy.purge_tombstones(100)
    assert [key for key, row in copy.space.scan(None, 100, 1 << 20) if row.value is None] == [key]
    copy.settled = copy.lwm
    assert copy.purge_tombstones(100)
    assert [key for key, _ in copy.space.scan(None, 100, 1 << 20)] == [b"o"]


def test_a_tombstone_that_a_row_of_the_turn_hides_is_noted_when_the_turn_is_not_written(
    copy: Copy,
) -> None:
    copy.save()
    _take(copy, (b"k", b"again", 0))
    copy.settled = 3
    assert copy.purge_tombstones(100) == 1
    assert not copy.tombstones

    copy.recover()

    assert copy.tombstones == {b"k": 3}
