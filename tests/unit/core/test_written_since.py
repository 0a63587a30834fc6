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
    return [copy.written_since(key, counter) for counter in range(5)]


def test_a_tombstone_tells_when_its_key_went(copy: Copy) -> None:
    assert _answers(copy, b"k") == [True, True, True, False, False]
    assert _answers(copy, b"never") == [False] * 5


def test_without_the_tombstone_the_log_tells(copy: Copy) -> None:
    copy.settled = 4
    assert copy.purge_tombstones()
    assert _answers(copy, b"k") == [True, True, True, False, False]
    assert _answers(copy, b"never") == [False] * 5


def test_what_nothing_tells_has_been_written(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.majority = copy.settled = 4
    copy.purge_tombstones()
    copy.cut_log(2)
    assert _answers(copy, b"never") == [True, True, False, False, False]

    monkeypatch.setattr(copy_module, "LOOK_BACK_MAX", 1)
    assert _answers(copy, b"never") == [True, True, True, False, False]


def test_a_flush_touches_no_key_that_is_absent(copy: Copy) -> None:
    for operation in ((b"between", b"x", 0), (None, None, 0)):
        _take(copy, operation)
    assert _answers(copy, b"never") == [False] * 5
    assert _answers(copy, b"k") == [True, True, True, False, False]
    assert _answers(copy, b"between") == [True] * 5
    _take(copy, (b"between", b"x", 0), (b"never", b"x", 0))
    _take(copy, (None, None, 0))
    assert copy.written_since(b"never", 6)
    assert not copy.written_since(b"never", 7)
