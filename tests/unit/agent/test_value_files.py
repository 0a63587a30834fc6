"""Long values of a Persistent zone: in files, written before the batch, whole or not at all."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest
from rocksdict import WriteBatch

from quorate.protocol.copies.totals import row_digest
from quorate.protocol.storage import COUNTER_MAX, Row, StorageFull
from quorate_agent.storage import value_files
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.storage.rocks import RocksStorage
from quorate_lone_agent.long_values import (
    EVERYTHING,
    LONG,
    files_of,
    long_value,
    update,
    write,
)


def test_an_update_and_its_row_share_one_file_and_are_read_back(
    storage: RocksStorage, tmp_path: Path
) -> None:
    value = long_value(1)
    write(storage, 1, value)
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, value)

    storage.commit()

    assert list(files_of(tmp_path / "zone").values()) == [len(update(1, value))]
    for _ in range(2):
        space = storage.space(0, 0)
        assert space.get(b"k") == Row(1, 1, 0, value)
        assert space.scan(None, 10, EVERYTHING) == [(b"k", Row(1, 1, 0, value))]
        assert space.byte_count() == 1 + len(value)
        assert space.digest() == row_digest(b"k", Row(1, 1, 0, value))
        assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, update(1, value))]
        assert storage.log_bytes(0) == len(update(1, value))
        storage.close()
        storage.__init__(tmp_path / "zone")


def test_rows_of_one_update_are_parts_of_its_file_and_rows_without_one_have_their_own(
    storage: RocksStorage, tmp_path: Path
) -> None:
    first, second, alone = long_value(1), long_value(2), long_value(3)
    # In front of the value is what only looks like its beginning.
    decoy = b"\xc6" + len(second).to_bytes(4, "big")
    both = msgspec.msgpack.encode((1, 1, ((b"a" + decoy, first, 0), (b"b" + decoy, second, 0))))
    storage.log_put(0, 1, 1, both)
    storage.space(0, 0).put_all(
        {b"a" + decoy: Row(1, 1, 0, first), b"b" + decoy: Row(1, 1, 0, second)}
    )
    storage.space(0, 0).put(b"c", Row(7, 1, 0, alone))  # as a full copy brings it
    storage.commit()

    assert sorted(files_of(tmp_path / "zone").values()) == sorted([len(both), len(alone)])
    assert [row.value for _, row in storage.space(0, 0).scan(None, 9, EVERYTHING)] == [
        first,
        second,
        alone,
    ]


def test_a_value_for_which_a_file_would_cost_more_than_the_engine_is_in_no_file(
    storage: RocksStorage, tmp_path: Path
) -> None:
    value = long_value(1, 500 * 1024)
    write(storage, 1, value)

    assert storage.write_ahead() == ()
    storage.commit()

    assert files_of(tmp_path / "zone") == {}
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, value)


def test_no_batch_has_a_long_value(storage: RocksStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    written = storage.database.write

    def write_noting(batch: Callable[[], WriteBatch]) -> None:
        made = batch()
        sizes.append(made.size_in_bytes())
        written(lambda: made)

    monkeypatch.setattr(storage.database, "write", write_noting)
    write(storage, 1, long_value(1, 1_000_000))
    storage.space(0, 0).put_all(
        {b"%d" % number: Row(2, 1, 0, long_value(number, 600_000)) for number in range(10)}
    )
    storage.commit()

    assert len(sizes) == 1
    assert sizes[0] < 10_000


def test_a_file_goes_with_the_last_that_refers_to_it_behind_the_next_sync(
    storage: RocksStorage, tmp_path: Path
) -> None:
    folder, space = tmp_path / "zone", storage.space(0, 0)
    write(storage, 1, long_value(1))
    storage.commit()
    write(storage, 2, b"short")
    storage.commit()
    storage.sync()
    assert len(files_of(folder)) == 1  # the log's

    storage.log_drop(0, 1, 1)
    storage.commit()
    assert len(files_of(folder)) == 1  # a crash may still bring back what refers to it
    storage.sync()
    assert files_of(folder) == {}

    for counter in (3, 4, 5):
        write(storage, counter, long_value(counter))
        storage.commit()
    storage.log_cut(0, 4)
    space.drop(b"k")
    storage.commit()
    storage.sync()
    assert len(files_of(folder)) == 1
    assert [counter for counter, _, _ in storage.log_read(0, 1, 9, EVERYTHING)] == [5]

    write(storage, 6, long_value(6), b"other")
    storage.log_cut(0, COUNTER_MAX >> 1)
    storage.commit()
    storage.drop_space(0, 0)
    space.put(b"other", Row(7, 1, 0, long_value(7)))  # as a full copy that begins anew
    storage.commit()
    storage.sync()
    assert list(files_of(folder).values()) == [LONG]
    assert space.scan(None, 9, EVERYTHING) == [(b"other", Row(7, 1, 0, long_value(7)))]


def test_what_the_turn_itself_replaces_leaves_no_file(
    storage: RocksStorage, tmp_path: Path
) -> None:
    for last in (b"short", None, long_value(9)):
        write(storage, 1, long_value(1))
        write(storage, 1, long_value(2))
        storage.space(0, 0).put(b"k", Row(1, 1, 0, last))
        storage.log_put(0, 1, 1, b"update")
        storage.commit()

        assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, last)
        assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, b"update")]
        storage.space(0, 0).put(b"k", Row(2, 1, 0, b""))
        storage.commit()
        storage.sync()
        assert files_of(tmp_path / "zone") == {}


# --- in a thread, while the loop goes on


class Gate:
    """A thread that writes files when it is let."""

    def __init__(self, storage: RocksStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let = threading.Event()
        self.ended = threading.Semaphore(0)
        written = storage.long_values.files.write

        def gated(values: dict[int, bytes]) -> None:
            assert self.let.wait(20)
            written(values)

        monkeypatch.setattr(storage.long_values.files, "write", gated)
        self.threads = ThreadPoolExecutor(1)
        storage.write_in(self.threads, self.ended.release)

    def wait_for_files(self) -> None:
        self.let.set()
        assert self.ended.acquire(timeout=20)
        self.threads.shutdown()  # its future is done


def test_other_partitions_are_written_while_a_long_value_is_on_its_way(
    storage: RocksStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(storage, monkeypatch)
    write(storage, 1, long_value(1), partition=4)
    write(storage, 1, b"small", partition=5)
    storage.record_put(b"c4", b"of 4")
    storage.record_put(b"c5", b"of 5")

    assert set(storage.write_ahead()) == {4}
    assert set(storage.write_ahead()) == {4}  # it is not begun again
    storage.commit({4}, {b"c4"})
    storage.sync()
    write(storage, 2, b"behind it", partition=4)
    shutil.copytree(tmp_path / "zone", tmp_path / "crashed")

    assert storage.space(4, 0).get(b"k") == Row(2, 1, 0, b"behind it")
    crashed = RocksStorage(tmp_path / "crashed")
    assert crashed.space(4, 0).get(b"k") is None
    assert crashed.log_read(4, 1, 9, EVERYTHING) == []
    assert crashed.record_get(b"c4") is None
    assert crashed.space(5, 0).get(b"k") == Row(1, 1, 0, b"small")
    assert crashed.record_get(b"c5") == b"of 5"
    crashed.close()

    gate.wait_for_files()
    assert list(storage.write_ahead()) == []
    storage.commit()
    storage.close()
    storage.__init__(tmp_path / "zone")
    assert storage.space(4, 0).get(b"k") == Row(2, 1, 0, b"behind it")
    assert storage.log_read(4, 1, 9, EVERYTHING) == [
        (1, 1, update(1, long_value(1))),
        (2, 1, update(2, b"behind it")),
    ]
    assert storage.record_get(b"c4") == b"of 4"


def test_a_turn_that_ends_early_waits_for_the_thread(
    storage: RocksStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(storage, monkeypatch)
    write(storage, 1, long_value(1))
    assert set(storage.write_ahead()) == {0}
    gate.let.set()

    storage.commit()

    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, long_value(1))


def test_a_file_that_finds_no_room_in_the_thread_refuses_the_turn(
    storage: RocksStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    threads, ended = ThreadPoolExecutor(1), threading.Semaphore(0)
    storage.database.use_value_files()
    storage.write_in(threads, ended.release)
    write(storage, 1, long_value(1))
    with monkeypatch.context() as full:
        full.setattr(value_files.os, "write", no_room)
        assert set(storage.write_ahead()) == {0}
        assert ended.acquire(timeout=20)
        threads.shutdown()

    assert list(storage.write_ahead()) == []
    with pytest.raises(StorageFull, match="No space left"):
        storage.commit()
    assert storage.space(0, 0).get(b"k") is None
    assert storage.log_read(0, 1, 9, EVERYTHING) == []
    assert files_of(tmp_path / "zone") == {}
    write(storage, 1, long_value(1))
    storage.commit()  # there is room again
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, long_value(1))


# --- crashes


def test_wherever_the_process_ends_the_value_is_there_whole_or_not_at_all(
    storage: RocksStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a killed process leaves is what its files hold: they are copied behind every write.
    before, after = long_value(1), long_value(2, LONG + 50_000)
    write(storage, 1, before)
    storage.commit()
    copies: list[Path] = []

    def copy() -> None:
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(tmp_path / "zone", copies[-1])

    written, write_file = storage.database.write, os.write

    def write_and_copy(batch: Callable[[], WriteBatch]) -> None:
        written(batch)
        copy()

    def write_some_and_copy(descriptor: int, data: memoryview) -> int:
        count = write_file(descriptor, data[:100_000])
        copy()
        return count

    with monkeypatch.context() as watched:
        watched.setattr(storage.database, "write", write_and_copy)
        watched.setattr(value_files.os, "write", write_some_and_copy)
        write(storage, 2, after)
        storage.commit()

    assert len(copies) == 18
    for copied in copies:
        whole = copied == copies[-1]
        opened = RocksStorage(copied)
        found = opened.space(0, 0).get(b"k")
        assert found == (Row(2, 1, 0, after) if whole else Row(1, 1, 0, before))
        logged = [(1, 1, update(1, before))] + ([(2, 1, update(2, after))] if whole else [])
        assert opened.log_read(0, 1, 9, EVERYTHING) == logged
        write(opened, 3, b"goes on")
        opened.commit()
        opened.sync()  # what nothing refers to goes with it
        assert len(files_of(copied)) == len(logged)
        write(opened, 4, long_value(4))
        opened.commit()
        assert opened.space(0, 0).get(b"k") == Row(4, 1, 0, long_value(4))
        opened.close()
        shutil.rmtree(copied)


def test_wherever_the_engine_s_log_is_cut_the_value_is_there_whole_or_not_at_all(
    storage: RocksStorage, tmp_path: Path
) -> None:
    before, after = long_value(1), long_value(2)
    write(storage, 1, before)
    storage.commit()
    storage.sync()
    (log,) = (tmp_path / "zone" / "rocksdb").glob("*.log")
    begins = log.stat().st_size
    write(storage, 2, after)
    storage.log_cut(0, 1)  # nothing refers to the first file any more
    storage.commit()
    ends = log.stat().st_size
    seen = set()

    assert ends - begins < 1000
    for cut in range(begins, ends + 1):  # power was lost before the next sync
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "zone", copy)
        os.truncate(copy / "rocksdb" / log.name, cut)
        opened = RocksStorage(copy)
        found = opened.space(0, 0).get(b"k")
        entries = opened.log_read(0, 1, 9, EVERYTHING)
        opened.close()
        shutil.rmtree(copy)
        whole = found == Row(2, 1, 0, after)
        seen.add(whole)
        assert whole or found == Row(1, 1, 0, before)
        assert entries[-1:] == [(2, 1, update(2, after)) if whole else (1, 1, update(1, before))]

    assert seen == {False, True}


def test_a_turn_that_finds_no_room_leaves_what_was_and_its_file_goes(
    storage: RocksStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(storage, 1, long_value(1))
    storage.commit()

    def no_room(batch: Callable[[], WriteBatch]) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as full:
        full.setattr(storage.database, "write", no_room)
        write(storage, 2, long_value(2))
        with pytest.raises(StorageFull):
            storage.commit()

    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, long_value(1))
    assert storage.space(0, 0).byte_count() == 1 + LONG
    assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, update(1, long_value(1)))]
    storage.sync()
    assert len(files_of(tmp_path / "zone")) == 1


# --- a model


@pytest.mark.parametrize("threaded", [False, True])
def test_rows_written_and_lost_at_random_are_those_of_a_model(
    tmp_path: Path, threaded: bool
) -> None:
    random = Random(11)
    threads = ThreadPoolExecutor(1)

    def open_it() -> RocksStorage:
        opened = RocksStorage(tmp_path / "zone")
        if threaded:
            opened.write_in(threads, lambda: None)
        return opened

    storage = open_it()
    # By partition, as they are in the database and with what the batch will bring.
    rows: list[dict[bytes, Row]] = [{}, {}]
    logs: list[dict[int, bytes]] = [{}, {}]
    new_rows, new_logs = [dict(each) for each in rows], [dict(each) for each in logs]
    floors = [0, 0]  # what is cut need not be out of the files, and is not asked for
    divided = 0
    for counter in range(1, 200):
        for partition in (0, 1):
            operations = []
            for _ in range(random.randrange(1, 4)):
                key = b"k%d" % random.randrange(5)
                size = random.choice([0, 10, LONG_BYTES, LONG_BYTES + 1, LONG])
                operations.append((key, random.randbytes(size), 0))
            raw = msgspec.msgpack.encode((counter, 1, operations))
            storage.log_put(partition, counter, 1, raw)
            new_logs[partition][counter] = raw
            for key, value, _ in operations:
                row = Row(counter, 1, 0, value)
                storage.space(partition, 0).put(key, row)
                new_rows[partition][key] = row
            if random.random() < 0.2:
                storage.space(partition, 0).drop(key)
                del new_rows[partition][key]
        waiting = storage.write_ahead()
        chance = random.random()
        if chance < 0.1:
            storage.close()  # the turn is lost
            storage = open_it()
            new_rows, new_logs = [dict(each) for each in rows], [dict(each) for each in logs]
        elif chance < 0.5 and waiting:
            divided += 1
            storage.commit(waiting)
        else:
            waiting = ()
            storage.commit()
        if chance >= 0.1:
            for partition in {0, 1} - {*waiting}:
                rows[partition] = dict(new_rows[partition])
                logs[partition] = dict(new_logs[partition])
        if random.random() < 0.3:
            storage.sync()
        for partition in (0, 1):
            if random.random() < 0.1 and new_logs[partition] and not waiting:
                floors[partition] = counter - 3
                storage.log_cut(partition, counter - 3)
                new_logs[partition] = {
                    each: raw for each, raw in new_logs[partition].items() if each > counter - 3
                }
            found = storage.space(partition, 0).scan(None, 99, EVERYTHING)
            assert found == sorted(new_rows[partition].items())
            entries = storage.log_read(partition, floors[partition] + 1, 1 << 40, EVERYTHING)
            assert entries == [
                (each, 1, raw)
                for each, raw in sorted(new_logs[partition].items())
                if each > floors[partition]
            ]

    storage.commit()
    storage.sync()
    assert divided > 5 if threaded else divided == 0
    storage.close()
    storage = open_it()
    for partition in (0, 1):
        found = storage.space(partition, 0).scan(None, 99, EVERYTHING)
        assert found == sorted(new_rows[partition].items())
    referred = {key[1:9] for key, _ in storage.database.items(b"w", b"x")}
    files = files_of(tmp_path / "zone")
    assert {int(name) for name in files} == {int.from_bytes(each) for each in referred}
    assert len(files) > 5
    storage.close()
    threads.shutdown()
