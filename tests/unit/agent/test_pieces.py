"""Long values of a Persistent zone: written in pieces before the batch, whole or not at all."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from rocksdict import WriteBatch

from quorate.protocol.storage import COUNTER_MAX, Row, StorageFull
from quorate.protocol.totals import row_digest
from quorate_agent.storage import DatabaseRefused, StorageBroken, database, pieces
from quorate_agent.storage.pieces import LONG_BYTES
from quorate_agent.storage.rocks import RocksStorage

EVERYTHING = 1 << 30
LONG = 3 * LONG_BYTES + 17


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 100_000)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[RocksStorage]:
    opened = RocksStorage(tmp_path / "zone")
    yield opened
    opened.close()


def long_value(seed: int, size: int = LONG) -> bytes:
    return Random(seed).randbytes(size)


def write(storage: RocksStorage, counter: int, value: bytes | None, key: bytes = b"k") -> None:
    """As one update does: a row and a log entry."""
    storage.space(0, 0).put(key, Row(counter, 1, 0, value))
    storage.log_put(0, counter, 1, b"update:" + (value or b""))


def pieces_in(storage: RocksStorage) -> tuple[int, int]:
    """Values and pieces that the database holds, whoever refers to them."""
    values = sum(1 for _ in storage.database.items(b"w", b"x"))
    return values, sum(1 for _ in storage.database.items(b"v", b"w"))


def written_ahead(storage: RocksStorage) -> int:
    """Write all ahead; in how many calls."""
    calls = 1
    while not storage.write_ahead():
        calls += 1
    return calls


def test_a_long_value_is_written_a_few_pieces_at_a_time_and_read_back(
    storage: RocksStorage, tmp_path: Path
) -> None:
    value = long_value(1)
    write(storage, 1, value)

    calls = written_ahead(storage)

    assert calls == 8  # 16 pieces of the row and the update, two in each
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, value)
    for _ in range(2):
        storage.commit()
        space = storage.space(0, 0)
        assert space.get(b"k") == Row(1, 1, 0, value)
        assert space.scan(None, 10, EVERYTHING) == [(b"k", Row(1, 1, 0, value))]
        assert space.byte_count() == 1 + len(value)
        assert space.digest() == row_digest(b"k", Row(1, 1, 0, value))
        assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, b"update:" + value)]
        assert storage.log_bytes(0) == len(b"update:" + value)
        storage.close()
        storage.__init__(tmp_path / "zone")


def test_no_batch_is_much_longer_than_a_step(
    storage: RocksStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    written = storage.database.write

    def write_noting(batch: Callable[[], WriteBatch], **options: bool) -> bool:
        made = batch()
        sizes.append(made.size_in_bytes())
        return written(lambda: made, **options)

    monkeypatch.setattr(storage.database, "write", write_noting)
    write(storage, 1, long_value(1, 1_000_000))
    storage.space(0, 0).put_all(
        {b"%d" % number: Row(2, 1, 0, long_value(number, 300_000)) for number in range(10)}
    )
    storage.commit()

    assert sum(sizes) > 5_000_000
    assert max(sizes) < 101_000


def test_what_is_replaced_removed_cut_or_dropped_leaves_no_piece(storage: RocksStorage) -> None:
    space = storage.space(0, 0)
    write(storage, 1, long_value(1))
    storage.commit()
    assert pieces_in(storage) == (2, 16)

    write(storage, 2, b"short")
    storage.commit()
    assert pieces_in(storage) == (1, 8)
    storage.log_drop(0, 1, 1)
    storage.commit()
    assert pieces_in(storage) == (0, 0)

    for counter in (3, 4, 5):
        write(storage, counter, long_value(counter))
        storage.commit()
    assert pieces_in(storage) == (4, 32)
    storage.log_cut(0, 4)
    space.drop(b"k")
    storage.commit()
    assert pieces_in(storage) == (1, 8)
    assert [counter for counter, _, _ in storage.log_read(0, 1, 9, EVERYTHING)] == [5]

    write(storage, 6, long_value(6), b"other")
    storage.log_cut(0, COUNTER_MAX >> 1)
    storage.commit()
    storage.drop_space(0, 0)
    space.put(b"other", Row(7, 1, 0, long_value(7)))  # as a full copy that begins anew
    storage.commit()
    assert pieces_in(storage) == (1, 8)
    assert space.scan(None, 9, EVERYTHING) == [(b"other", Row(7, 1, 0, long_value(7)))]


def test_what_the_turn_itself_replaces_leaves_no_piece(storage: RocksStorage) -> None:
    for last in (b"short", None, long_value(9)):
        write(storage, 1, long_value(1))
        written_ahead(storage)
        write(storage, 1, long_value(2))
        assert not storage.write_ahead()
        storage.space(0, 0).put(b"k", Row(1, 1, 0, last))
        storage.log_put(0, 1, 1, b"update")
        storage.commit()

        assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, last)
        assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, b"update")]
        storage.space(0, 0).put(b"k", Row(2, 1, 0, b""))
        storage.commit()
        assert pieces_in(storage) == (0, 0)


def test_wherever_the_process_ends_the_value_is_there_whole_or_not_at_all(
    storage: RocksStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a killed process leaves is what its files hold: they are copied behind every write.
    before, after = long_value(1), long_value(2, LONG + 50_000)
    write(storage, 1, before)
    storage.commit()
    copies: list[Path] = []
    written = storage.database.write

    def write_and_copy(batch: Callable[[], WriteBatch], **options: bool) -> bool:
        done = written(batch, **options)
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(tmp_path / "zone", copies[-1])
        return done

    monkeypatch.setattr(storage.database, "write", write_and_copy)
    write(storage, 2, after)
    storage.commit()

    assert len(copies) == 19
    for copy in copies:
        whole = copy == copies[-1]
        opened = RocksStorage(copy)
        found = opened.space(0, 0).get(b"k")
        assert found == (Row(2, 1, 0, after) if whole else Row(1, 1, 0, before))
        logged = [(1, 1, b"update:" + before)] + ([(2, 1, b"update:" + after)] if whole else [])
        assert opened.log_read(0, 1, 9, EVERYTHING) == logged
        write(opened, 3, b"goes on")
        opened.commit()  # what nothing refers to goes with it
        assert pieces_in(opened)[0] == len(logged)
        write(opened, 4, long_value(4))
        opened.commit()
        assert opened.space(0, 0).get(b"k") == Row(4, 1, 0, long_value(4))
        opened.close()
        shutil.rmtree(copy)


def test_wherever_the_engine_s_log_is_cut_the_value_is_there_whole_or_not_at_all(
    storage: RocksStorage, tmp_path: Path
) -> None:
    before, after = long_value(1), long_value(2)
    write(storage, 1, before)
    storage.commit()
    (log,) = (tmp_path / "zone" / "rocksdb").glob("*.log")
    begins = log.stat().st_size
    write(storage, 2, after)
    storage.commit()
    ends = log.stat().st_size
    seen = set()

    for cut in sorted({ends, ends - 1, *Random(3).sample(range(begins, ends), 25)}):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "zone", copy)
        os.truncate(copy / "rocksdb" / log.name, cut)
        opened = RocksStorage(copy)
        found = opened.space(0, 0).get(b"k")
        entries = opened.log_read(0, 1, 9, EVERYTHING)
        opened.close()
        shutil.rmtree(copy)
        seen.add(len(entries))
        assert found == (Row(2, 1, 0, after) if len(entries) == 2 else Row(1, 1, 0, before))
        assert entries[1:] in ([], [(2, 1, b"update:" + after)])

    assert seen == {1, 2}


def test_a_turn_that_finds_no_room_leaves_what_was_and_its_pieces_go(
    storage: RocksStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(storage, 1, long_value(1))
    storage.commit()
    written, left = storage.database.write, [5]

    def no_room_after_some(batch: Callable[[], WriteBatch], **options: bool) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise StorageFull("no room")
        return written(batch, **options)

    with monkeypatch.context() as full:
        full.setattr(storage.database, "write", no_room_after_some)
        write(storage, 2, long_value(2))
        assert written_ahead(storage) == 3
        with pytest.raises(StorageFull):
            storage.commit()

    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, long_value(1))
    assert storage.space(0, 0).byte_count() == 1 + LONG
    assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, b"update:" + long_value(1))]
    write(storage, 2, b"")
    storage.commit()
    assert pieces_in(storage) == (1, 8)


def test_a_value_of_which_a_piece_is_missing_is_damage(
    storage: RocksStorage, tmp_path: Path
) -> None:
    write(storage, 1, long_value(1))
    storage.commit()
    gone = next(key for key, _ in storage.database.items(b"v", b"w"))

    def batch() -> WriteBatch:
        made = WriteBatch(raw_mode=True)
        made.delete(gone)
        return made

    storage.database.write(batch)

    with pytest.raises(StorageBroken, match=r"rocksdb: of value 1 there are \d+ bytes.*Way out"):
        storage.space(0, 0).get(b"k")


def test_only_a_folder_with_a_long_value_is_refused_by_versions_that_know_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "zone" / "format.json"
    storage = RocksStorage(tmp_path / "zone")
    write(storage, 1, bytes(LONG_BYTES - 7))
    storage.commit()
    assert json.loads(said.read_text()) == {"format": 1}
    assert pieces_in(storage) == (0, 0)
    storage.close()

    storage = RocksStorage(tmp_path / "zone")
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, bytes(LONG_BYTES - 7))
    write(storage, 2, bytes(LONG_BYTES + 1))
    storage.commit()
    storage.close()

    assert json.loads(said.read_text()) == {"format": 2}
    monkeypatch.setattr(database, "FORMAT_VERSION", 1)
    with pytest.raises(DatabaseRefused, match=r"format 2, this version reads up to 1\. Way out"):
        RocksStorage(tmp_path / "zone")


def test_rows_written_and_lost_at_random_are_those_of_a_model(tmp_path: Path) -> None:
    random = Random(11)
    storage = RocksStorage(tmp_path / "zone")
    kept: dict[bytes, Row] = {}
    log: dict[int, bytes] = {}
    floor = 0  # what is cut need not be out of the files, and is not asked for
    for counter in range(1, 120):
        rows, entries, cut = dict(kept), dict(log), floor
        for _ in range(random.randrange(1, 4)):
            key = b"k%d" % random.randrange(5)
            size = random.choice([0, 10, LONG_BYTES, LONG_BYTES + 1, LONG])
            row = Row(counter, 1, 0, random.randbytes(size))
            if random.random() < 0.2:
                storage.space(0, 0).drop(key)
                rows.pop(key, None)
            else:
                storage.space(0, 0).put(key, row)
                rows[key] = row
            if random.random() < 0.3:
                storage.write_ahead()
        entries[counter] = random.randbytes(random.choice([20, LONG]))
        storage.log_put(0, counter, 1, entries[counter])
        if random.random() < 0.1:
            cut = counter - 3
            storage.log_cut(0, cut)
            entries = {each: entries[each] for each in entries if each > cut}
        if random.random() < 0.1:
            storage.close()  # the turn is lost
            storage = RocksStorage(tmp_path / "zone")
        else:
            storage.commit()
            kept, log, floor = rows, entries, cut
        assert storage.space(0, 0).scan(None, 99, EVERYTHING) == sorted(kept.items())
        found = storage.log_read(0, floor + 1, 1 << 40, EVERYTHING)
        assert found == [(each, 1, update) for each, update in sorted(log.items())]

    long = [row for row in kept.values() if len(row.value or b"") > LONG_BYTES]
    storage.record_put(b"last", b"batch")  # it removes what nothing refers to
    storage.commit()
    storage.close()
    storage = RocksStorage(tmp_path / "zone")
    found = storage.log_read(0, 1, 1 << 40, EVERYTHING)
    long_updates = [update for _, _, update in found if len(update) > LONG_BYTES]
    assert long
    assert long_updates
    assert pieces_in(storage)[0] == len(long) + len(long_updates)
    storage.close()
