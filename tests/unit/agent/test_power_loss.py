"""A power loss takes unsynced parts of logs, in any order: a zone has all its changes up to one and
none behind it.  If it takes what was recorded as synced, the zone is refused."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from quorate.protocol.storage import Row
from quorate_agent.storage import DatabaseRefused
from quorate_agent.storage.log_records import BLOCK_BYTES
from quorate_agent.storage.rocks import RocksStorage

OLD = 400
NEW = 10
VALUE = b"\x01value" * 20
PAGE = 4096


class Written(NamedTuple):
    """A disk on which a log was replaced, but not yet by a table.

    `ends`: the old log's bytes and the engine's sequence number after each write."""

    image: Path
    ends: list[int]
    sequences: list[int]


def _write(storage: RocksStorage, number: int) -> None:
    storage.space(0, 0).put(b"%d" % number, Row(number, 1, 0, VALUE))
    storage.record_put(b"last", b"%d" % number)
    storage.commit()


def _logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("rocksdb/*.log"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    live, image = folder / "live", folder / "image"
    storage = RocksStorage(live)
    (old,) = _logs(live)
    ends, sequences = [old.stat().st_size], [storage.database.sequence]
    for number in range(1, OLD + 1):
        _write(storage, number)
        ends.append(old.stat().st_size)
        sequences.append(storage.database.sequence)
    shutil.copytree(live, image)
    storage.database._db.flush(True)
    for number in range(OLD + 1, OLD + NEW + 1):
        _write(storage, number)
    (new,) = [log for log in _logs(live) if log.stat().st_size]
    shutil.copy(new, image / "rocksdb" / new.name)
    storage.close()
    return Written(image, ends, sequences)


@pytest.fixture
def disk(written: Written, tmp_path: Path) -> Path:
    """The disk after the loss, which a test makes greater."""
    return shutil.copytree(written.image, tmp_path / "zone")


def _last(folder: Path, synced: int = 0) -> int:
    """The last change that the zone has, which has all before it and none behind it."""
    storage = RocksStorage(folder, synced=synced)
    try:
        last = int(storage.record_get(b"last") or 0)
        keys = {key for key, _ in storage.space(0, 0).scan(None, 1 << 20, 1 << 40)}
        assert keys == {b"%d" % number for number in range(1, last + 1)}
        return last
    finally:
        storage.close()


def _zero(log: Path, start: int, end: int) -> None:
    with log.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


def _opened_twice(folder: Path, synced: int) -> int:
    """The last change; the zone takes more, and has them at the next start."""
    last = _last(folder, synced)
    storage = RocksStorage(folder, synced=synced)
    _write(storage, last + 1)
    storage.sync()
    image = shutil.copytree(folder, folder.with_name("after"))
    storage.close()
    assert _last(image) == last + 1
    return last


def test_logs_that_follow_each_other_are_read_whole(written: Written, disk: Path) -> None:
    assert _opened_twice(disk, written.sequences[-1]) == OLD + NEW


@pytest.mark.parametrize("lacks", [1, 3, OLD])
@pytest.mark.parametrize("more", [0, 1, 50])
def test_a_newer_log_is_not_read_behind_a_gap(
    written: Written, disk: Path, lacks: int, more: int
) -> None:
    """Its end is the end of a record, or inside one."""
    left = OLD - lacks
    os.truncate(_logs(disk)[0], written.ends[left] + more)

    assert _opened_twice(disk, written.sequences[left]) == left


def test_logs_are_read_in_order_of_their_numbers(written: Written, disk: Path) -> None:
    """Of which some have a digit more."""
    old, new = _logs(disk)
    os.truncate(old, written.ends[OLD - 3])
    old.rename(old.with_name("999999.log"))
    new.rename(new.with_name("1000000.log"))

    assert _opened_twice(disk, written.sequences[OLD - 3]) == OLD - 3


def test_an_older_log_whose_content_is_in_a_table_is_no_gap(written: Written, disk: Path) -> None:
    """A process that ends may leave it behind."""
    old = _logs(disk)[0]
    kept = old.read_bytes()[: written.ends[200]]
    _last(disk)
    assert not old.exists()
    storage = RocksStorage(disk)
    _write(storage, OLD + NEW + 1)
    storage.close()
    old.write_bytes(kept)

    assert _last(disk) == OLD + NEW + 1


@pytest.mark.parametrize("behind", [0, 20])
@pytest.mark.parametrize("to_the_end", [False, True])
def test_empty_pages_behind_what_was_synced_are_no_damage(
    written: Written, disk: Path, behind: int, to_the_end: bool
) -> None:
    """They begin with a record, or inside one."""
    start = written.ends[200] + behind
    old = _logs(disk)[0]
    _zero(old, start, written.ends[-1] if to_the_end else start + PAGE)

    assert _opened_twice(disk, written.sequences[200]) == 200


def test_an_empty_page_at_the_begin_of_a_log_ends_it(written: Written, disk: Path) -> None:
    _zero(_logs(disk)[0], 0, PAGE)

    assert _opened_twice(disk, 0) == 0


@pytest.mark.parametrize("behind", [0, 20])
def test_an_empty_page_in_what_was_synced_is_refused_at_every_start(
    written: Written, disk: Path, behind: int
) -> None:
    start = written.ends[200] + behind
    _zero(_logs(disk)[0], start, start + PAGE)

    for _ in range(2):
        with pytest.raises(DatabaseRefused, match=r"cannot be opened \(Corruption.*Way out"):
            _last(disk, synced=written.sequences[201])


def test_a_refused_log_can_be_mended(written: Written, disk: Path) -> None:
    """A start that refuses it removes nothing of it."""
    old = _logs(disk)[0]
    whole = old.read_bytes()
    page = slice(written.ends[200], written.ends[200] + PAGE)
    _zero(old, page.start, page.stop)
    damaged = {log: log.read_bytes() for log in _logs(disk)}
    with pytest.raises(DatabaseRefused):
        _last(disk, synced=written.sequences[-1])
    assert {log: log.read_bytes() for log in _logs(disk)} == damaged

    with old.open("r+b") as file:
        file.seek(page.start)
        file.write(whole[page])

    assert _last(disk, synced=written.sequences[-1]) == OLD + NEW


@pytest.mark.parametrize("free", range(9))
@pytest.mark.parametrize("lacks", [False, True])
def test_a_log_may_end_anywhere_in_a_block(tmp_path: Path, free: int, lacks: bool) -> None:
    """Also where fewer bytes are left than a record's header has."""
    live, image = tmp_path / "live", tmp_path / "image"
    storage = RocksStorage(live)
    (old,) = _logs(live)
    _write(storage, 1)
    one = old.stat().st_size
    _write(storage, 2)
    two = old.stat().st_size - one
    filler = b"\x01" * (BLOCK_BYTES - free - old.stat().st_size - two + len(VALUE) - 1)
    storage.space(0, 0).put(b"3", Row(3, 1, 0, filler))
    storage.record_put(b"last", b"3")
    storage.commit()
    assert old.stat().st_size == BLOCK_BYTES - free
    shutil.copytree(live, image)
    if lacks:
        _write(storage, 4)
    storage.database._db.flush(True)
    _write(storage, 4 + lacks)
    (new,) = [log for log in _logs(live) if log.stat().st_size]
    shutil.copy(new, image / "rocksdb" / new.name)
    storage.close()

    assert _last(image) == (3 if lacks else 4)
