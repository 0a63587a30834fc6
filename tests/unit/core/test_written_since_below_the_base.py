"""An absent key whose update is below the folded base of the lineage, and still in the log."""

import msgspec

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.messages.replication import Update
from quorate_agent.storage.memory import MemoryStorage


def _take(into: Copy, term: int, key: bytes, value: bytes | None) -> None:
    update = Update(into.hwm + 1, term, ((key, value, 0),))
    into.reserve()
    into.keep(update, msgspec.msgpack.encode(update))


def test_what_the_log_holds_below_the_folded_base_tells_too() -> None:
    copy = Copy(0, MemoryStorage(0))
    copy.promise(1, Holder("a1", "s1", 1))
    copy.adopt(Lineage(0, 0, (Entry(1, 1),)), 0, {})
    for key, value in ((b"o", b"x"), (b"k", b"x"), (b"k", None), (b"o", b"y")):
        _take(copy, 1, key, value)
    copy.promise(2, Holder("a2", "s2", 1))
    copy.adopt(Lineage(0, 0, (Entry(1, 1), Entry(2, 5))), 4, {})
    _take(copy, 2, b"o", b"z")
    copy.majority = copy.settled = 5
    copy.purge_tombstones(10)
    copy.cut_log(1)  # the log has 2 and what follows
    assert copy.log_from == 1
    assert copy.written_since({b"k": 1})
