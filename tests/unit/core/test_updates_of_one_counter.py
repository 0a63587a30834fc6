"""Two updates with one counter, of two terms, in a log that is read in pieces."""

import msgspec
import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies import copy as copy_module
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.supply import supply_updates
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.transfer import FetchUpdates, Updates
from quorate_agent.storage.memory import MemoryStorage

OLD = Lineage(0, 0, (Entry(1, 1),))
NEW = Lineage(0, 0, (Entry(1, 1), Entry(2, 2)))
"""Counter 2 of term 1 was never acknowledged: term 2 has another update with it."""


def _update(term: int, counter: int) -> tuple[Update, bytes]:
    update = Update(counter, term, ((b"%d" % counter, b"of term %d" % term, 0),))
    return update, msgspec.msgpack.encode(update)


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch) -> Copy:
    """It has 1 and 2 of term 1, and holds 2 of term 2."""
    monkeypatch.setattr(copy_module, "LOG_READ_BYTES", 1)
    made = Copy(0, MemoryStorage(0))
    made.promise(1, Holder("a", "store-a", 1))
    made.adopt(OLD, 0, {})
    for term, counter in ((1, 1), (1, 2)):
        made.keep(*_update(term, counter))
    made.promise(2, Holder("b", "store-b", 1))
    made.keep(*_update(2, 2))
    return made


def _value(copy: Copy) -> bytes | None:
    row = copy.get(b"2")
    return row.value if row is not None else None


def test_the_valid_one_is_applied_when_the_copy_adopts(copy: Copy) -> None:
    assert _value(copy) == b"of term 1"

    copy.adopt(NEW.appended(Entry(3, 3)), 1, {b"2": None})
    assert (copy.lwm, _value(copy)) == (2, b"of term 2")


def test_both_are_held_after_a_restart(copy: Copy) -> None:
    for term in (1, 2):
        copy.keep(*_update(term, 4))
    copy.storage.commit()
    again = Copy(0, copy.storage)
    again.recover()

    assert again.lwm == copy.lwm == 2
    assert again.held() == ((1, ((4, 4),)), (2, ((4, 4),)))


def test_it_is_supplied_whatever_the_room(copy: Copy) -> None:
    answer = supply_updates("z", copy, FetchUpdates("z", 0, 2, ((2, 2),)), 1)
    assert isinstance(answer, Updates)
    assert answer.updates == (_update(1, 2)[1], _update(2, 2)[1])
