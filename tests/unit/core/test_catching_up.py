"""Updates that came while a partition was copied are applied in slices, not all in the turn that
adopts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.fill import CATCH_UP_CHUNKS, CATCH_UP_TRIES, ROW_DROPPED_BYTES, Fill
from quorate.protocol.copies.leases import Leases
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


def promised(storage: Storage, partition: int = 0) -> Copy:
    copy = Copy(partition, storage)
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
    return copied_by(promised(storage), primary)


def copied_by(copy: Copy, primary: Copy) -> Fill:
    exchange = Exchange(Fill(copy, LINEAGE, primary.lwm, ["p"], SETTINGS), {"p": primary})
    exchange.run()
    assert exchange.fill.is_full
    assert exchange.fill.is_complete()
    return exchange.fill


def hold(copy: Copy, raw: bytes) -> None:
    assert copy.keep(decode_update(raw), raw)


def behind(fill: Fill) -> int:
    return fill.copy.storage.log_bytes(fill.copy.partition, fill._chunk_floor + 1)


def has_slice(fill: Fill) -> bool:
    """Have one slice applied."""
    return fill.catch_up(SLICE_BYTES)


def come(fill: Fill, owner: Copy, updates: int) -> None:
    for counter in range(updates):
        hold(fill.copy, write(owner, counter))


def told(fill: Fill) -> int:
    """The progress as the master is told of it."""
    return fill.progress("zone", done=False).bytes_done


def finished(fill: Fill) -> Copy:
    assert fill.is_complete()
    fill.finish()
    fill.copy.check()
    return fill.copy


def test_each_turn_applies_a_slice_and_the_last_one_has_little_left(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    come(fill, owner, UPDATES)
    slices, left, progress = 0, behind(fill), told(fill)
    while has_slice(fill):
        assert behind(fill) < left
        assert told(fill) > progress, "else the master gives the migration up"
        slices, left, progress = slices + 1, behind(fill), told(fill)

    assert slices > 5
    assert left <= SLICE_BYTES
    copy = finished(fill)
    assert copy.lwm == owner.lwm
    assert copy.space.digest() == owner.space.digest()
    assert copy.space.row_count() == owner.space.row_count()


def test_between_ticks_nothing_is_applied(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    assert not fill.catch_up(0)
    come(fill, owner, UPDATES)
    left = behind(fill)
    assert fill.catch_up(0)
    assert behind(fill) == left


def test_a_gap_is_closed_first(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    late = write(owner, 1)
    come(fill, owner, UPDATES)
    for _ in range(2 * CATCH_UP_TRIES):
        assert not has_slice(fill)

    hold(fill.copy, late)
    assert has_slice(fill)
    while has_slice(fill):
        pass
    assert finished(fill).space.digest() == owner.space.digest()


def test_a_gap_of_many_answers_ends_no_slices(storage: Storage) -> None:
    """The link was away for some seconds: each answer brings what a slice applies."""
    owner = primary()
    fill = copied(storage, owner)
    for counter in range(6 * UPDATES):
        write(owner, counter)
    fill._need = owner.lwm
    come(fill, owner, UPDATES)
    exchange = Exchange(fill, {"p": owner}, 4 * SLICE_BYTES)
    answers = 0
    while not fill.is_complete():
        exchange.run(asks=1)
        answers += 1
        while has_slice(fill):
            pass

    assert answers > CATCH_UP_TRIES
    assert behind(fill) <= SLICE_BYTES
    assert finished(fill).space.digest() == owner.space.digest()


def test_a_flushall_deletes_few_rows_with_each_slice(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    rows = fill.copy.storage.space(0, fill.generation)
    come(fill, owner, 10)
    hold(fill.copy, owner.write(FLUSHALL))
    come(fill, owner, UPDATES)
    most, left, progress = SLICE_BYTES // ROW_DROPPED_BYTES + 1, rows.row_count(), told(fill)
    deleted = 0
    while has_slice(fill):
        assert left - rows.row_count() <= most
        deleted += max(left - rows.row_count(), 0)
        assert told(fill) > progress
        left, progress = rows.row_count(), told(fill)

    assert deleted > CATCH_UP_TRIES / 2
    assert behind(fill) <= SLICE_BYTES
    copy = finished(fill)
    assert copy.space.digest() == owner.space.digest()
    assert copy.space.row_count() == owner.space.row_count()


def test_after_a_burst_it_goes_on_in_slices(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    come(fill, owner, 10 * UPDATES)
    assert has_slice(fill)
    come(fill, owner, 20)

    slices = 0
    while has_slice(fill):
        slices += 1
    assert slices > 5
    assert behind(fill) <= SLICE_BYTES
    assert finished(fill).space.digest() == owner.space.digest()


def test_slices_are_larger_while_more_comes(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    come(fill, owner, 2 * UPDATES)
    slices = 0
    while has_slice(fill):
        slices += 1
        assert slices < 50
        if behind(fill) > 3 * SLICE_BYTES:
            come(fill, owner, 10)  # more than a slice
    assert behind(fill) <= SLICE_BYTES
    assert finished(fill).space.digest() == owner.space.digest()


def test_where_more_comes_than_is_applied_it_adopts_all_the_same(storage: Storage) -> None:
    owner = primary()
    fill = copied(storage, owner)
    come(fill, owner, UPDATES)
    slices = 0
    while has_slice(fill):
        slices += 1
        assert slices < 2 * CATCH_UP_TRIES
        come(fill, owner, 20 * (slices + 1))

    assert slices >= CATCH_UP_TRIES
    assert finished(fill).space.digest() == owner.space.digest()


def test_the_fills_of_a_zone_share_what_a_tick_applies() -> None:
    owner, now, partitions = primary(), Now(1_000_000, 1_000_000), 4
    record = ZoneRecord("uid-1", "books", partitions, 1)
    leases, me = Leases(SETTINGS, 1, 0), Holder("a", "s-a", 1)
    zone = Replicas(record, me, MemoryStorage(0), leases, SETTINGS, now)
    for partition in range(partitions):
        copy = zone.copies[partition] = promised(zone.storage, partition)
        zone.fills[partition] = copied_by(copy, owner)
    for counter in range(UPDATES):
        raw = write(owner, counter)
        for fill in zone.fills.values():
            hold(fill.copy, raw)

    floor = owner.lwm - UPDATES
    zone.tick(now)
    applied = [fill._chunk_floor - floor for fill in zone.fills.values()]

    assert all(applied)
    assert len(applied) == partitions
    assert (sum(applied) - partitions) * len(raw) <= SLICE_BYTES
