"""Copies whose updates are numbered: update n writes the key n."""

import msgspec

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.fill import Fill
from quorate.protocol.messages.replication import Update
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Row
from quorate_agent.storage.memory import MemoryStorage
from quorate_lone_copies.exchange import Exchange

SETTINGS = ProtocolSettings()


def empty_copy(term: int = 1) -> Copy:
    """A copy that holds nothing and has promised the term."""
    copy = Copy(0, MemoryStorage(0))
    copy.promise(term, Holder("a", "store-a", 1))
    return copy


def first_copy() -> Copy:
    """A copy that has adopted the partition's first term, in which nothing is written yet."""
    copy = empty_copy()
    copy.adopt(EMPTY_LINEAGE.appended(Entry(1, 1)), 0, {})
    return copy


def fill(copy: Copy, primary: Copy, need: int) -> Fill:
    """How the copy begins to adopt its primary's term: it needs the updates up to `need`."""
    return Fill(copy, primary.lineage, need, ["primary"], SETTINGS)


def filled(filling: Fill, primary: Copy) -> Copy:
    """The copy, after its primary has supplied all that was missing and it has adopted."""
    Exchange(filling, {"primary": primary}).run()
    filling.finish()
    filling.copy.check()
    return filling.copy


def another_copy(primary: Copy, upto: int | None = None) -> Copy:
    """One more copy, filled to what was there when the term began, or to `upto`."""
    before = primary.lineage.last_first - 1
    copy = empty_copy(primary.promise_term)
    return filled(fill(copy, primary, before if upto is None else upto), primary)


def take(copy: Copy, first: int, last: int) -> bool:
    """Deliver the updates first..last of the copy's term; whether any was new."""
    was_new = False
    for counter in range(first, last + 1):
        update = _update(copy.last_term, counter)
        was_new |= copy.keep(update, msgspec.msgpack.encode(update))
    return was_new


def held(copy: Copy) -> set[int]:
    """The counters that the copy holds, applied or not."""
    above = {n for _, pairs in copy.held() for low, high in pairs for n in range(low, high + 1)}
    return above | set(range(1, copy.lwm + 1))


def check_rows(copy: Copy) -> None:
    """The rows are those of the updates up to LWM, each once, and no others."""
    copy.check()
    assert copy.space.row_count() == copy.lwm
    for counter in range(1, copy.lwm + 1):
        term = copy.lineage.term_at(counter)
        assert term is not None
        [(key, value, _)] = _update(term, counter).operations
        assert key is not None
        assert copy.get(key) == Row(counter, term, 0, value)


def _update(term: int, counter: int) -> Update:
    return Update(counter, term, ((b"%d" % counter, b"written in term %d" % term, 0),))
