"""Updates that came while a partition was copied are applied in slices, not all in the turn that
adopts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.fill import CATCH_UP_CHUNKS, Fill
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Operation, Storage
from quorate_agent.storage.memory import MemoryStorage
from quorate_lone_agent.storage_engine import Engine
from quorate_lone_copies.exchange import Exchange

SETTINGS = ProtocolSettings(transfer_chunk_bytes=25)
SLICE_BYTES = CATCH_UP_CHUNKS * SETTINGS.transfer_chunk_bytes
LINEAGE = EMPTY_LINEAGE.appended(Entry(2, 1))
UPDATES = 120
FLUSHALL: tuple[Operation, ...] = ((None, None, 0),)


@pytest.fixture(params=["memory", "rocks", "simulated"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    engine = Engine(request.param, tmp_path)
    yield engine.open()
    engine.close()


def promised(storage: Storage) -> Copy:
    copy = Copy(0, storage)
    copy.promise(2, Holder("p", "store-p", 1))
    return copy


def primary() -> Copy:
    """It has written, and its log has nothing of that any more."""
    copy = promised(MemoryStorage(0))
    copy.adopt(LINEAGE, 0, {})
    for counter in range(20):
        write(copy, counter)
    copy.majority = copy.lwm
    copy.cut_log(copy.lwm)
    return copy


def write(copy: Copy, counter: int) -> bytes:
    """An update of one of 30 keys; every fifth deletes its key."""
    value = b"v%d" % counter if counter % 5 else None
    return copy.write(((b"k%02d" % (counter % 30), value, 0),))


def copied(storage: Storage, primary: Copy) -> Fill:
    """A fill that has the whole snapshot."""
    exchange = Exchange(
        Fill(promised(storage), LINEAGE, primary.lwm, ["p"], SETTINGS), {"p": primary}
    )
    exchange.run()
    assert exchange.fill.is_full
    assert exchange.fill.is_complete()
    return exchange.fill


def hold(copy: Copy, raw: bytes) -> None:
    assert copy.keep(decode_update(raw), raw)


def behind(fill: Fill) -> int:
    return fill.copy.storage.log_bytes(0, fill._chunk_floor + 1)


def finished(fill: Fill) -> Copy:
    assert fill.is_complete()
    fill.finish()
    fill.copy.check()
    return fill.copy


def test_each_turn_applies_a_slice_and_the_last_one_has_little_left(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    for counter in range(UPDATES):
        hold(fill.copy, write(owner, counter))
    slices, left = 0, behind(fill)
    while fill.catch_up():
        assert behind(fill) < left
        slices, left = slices + 1, behind(fill)

    assert slices > 5
    assert left <= SLICE_BYTES
    copy = finished(fill)
    assert copy.lwm == owner.lwm
    assert copy.space.digest() == owner.space.digest()
    assert copy.space.row_count() == owner.space.row_count()


def test_a_gap_and_a_flushall_are_left_to_the_turn_that_adopts(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    late = write(owner, 1)
    for counter in range(UPDATES):
        hold(fill.copy, write(owner, counter))
    assert not fill.catch_up()

    hold(fill.copy, late)
    assert fill.catch_up()
    hold(fill.copy, owner.write(FLUSHALL))
    for counter in range(UPDATES):
        hold(fill.copy, write(owner, counter))
    while fill.catch_up():
        pass

    copy = finished(fill)
    assert copy.space.digest() == owner.space.digest()


def test_where_more_comes_than_is_applied_it_adopts_all_the_same(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    for counter in range(UPDATES):
        hold(fill.copy, write(owner, counter))
    assert fill.catch_up()
    for counter in range(UPDATES):
        hold(fill.copy, write(owner, counter))

    assert not fill.catch_up()
    assert finished(fill).space.digest() == owner.space.digest()
