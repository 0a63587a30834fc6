"""Rows that a zone on disk keeps unpacked are those that the database has."""

from pathlib import Path
from random import Random

import pytest

from quorate.protocol.storage import Row, StorageFull
from quorate_agent.storage.recent_rows import (
    ROW_BYTES_MAX,
    ROWS_MAX,
    ROWS_MIN,
    recent_rows,
    rows_max_of,
)
from quorate_agent.storage.rocks import RocksStorage


def test_rows_read_are_those_written_whatever_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_rows(), "rows_max", 5)
    storage, random = RocksStorage(tmp_path / "zone"), Random(3)
    spaces = [storage.space(0, 0), storage.space(1, 0)]
    expected: list[dict[bytes, Row]] = [{}, {}]
    for turn in range(300):
        written = [dict(rows) for rows in expected]
        for counter in range(random.randrange(4)):
            at, key = random.randrange(2), b"k%d" % random.randrange(12)
            kind = random.random()
            if kind < 0.1:
                storage.drop_space(at, 0)
                written[at].clear()
            elif kind < 0.3:
                spaces[at].drop(key)
                written[at].pop(key, None)
            else:
                value = b"v" * random.choice([1, ROW_BYTES_MAX])
                written[at][key] = row = Row(turn + counter, 1, 0, value)
                spaces[at].put(key, row)
        if random.random() < 0.2:
            with monkeypatch.context() as full:
                full.setattr(storage.database, "write", _refuse)
                if any(space.overlay or space.dropped for space in spaces):
                    with pytest.raises(StorageFull):
                        storage.commit()
        else:
            storage.commit()
            expected = written
        for at, key in [(random.randrange(2), b"k%d" % number) for number in range(12)]:
            assert spaces[at].get(key) == expected[at].get(key)
    storage.close()


def _refuse(batch: object) -> None:
    raise StorageFull("no room")


def test_however_many_zones_there_are_they_keep_no_more_rows_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_rows(), "rows_max", 100)
    zones = [RocksStorage(tmp_path / f"zone-{number}") for number in range(5)]
    spaces = [zone.space(0, 0) for zone in zones]
    for space in spaces:
        for key in range(99):
            assert space.get(b"%d" % key) is None

    assert sum(len(space._recent) + len(space._less_recent) for space in spaces) <= 200
    for zone in zones:
        zone.close()


@pytest.mark.parametrize(
    ("memory_bytes", "rows_max"),
    [(1 << 28, ROWS_MIN), (2 << 30, 75_403), (64 << 30, ROWS_MAX)],
)
def test_cached_rows_take_a_part_of_the_memory_limit(memory_bytes: int, rows_max: int) -> None:
    assert rows_max_of(memory_bytes) == rows_max
