"""A database whose files are damaged, missing, in use or of another format is refused by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.rocks import RocksStorage

EVERYTHING = 1 << 30
SYNCED = 800
"""Sequence number of the filled zone: each batch changes a row and the totals."""


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A closed zone: one table, and a log with 200 more batches in it."""
    zone = tmp_path / "zone"
    code = """
import os, sys
from quorate.protocol.storage import Row
from quorate_agent.storage.rocks import RocksStorage
storage = RocksStorage(sys.argv[1])
for start in (0, 200):
    for number in range(start, start + 200):
        storage.space(0, 0).put(b"%04d" % number, Row(number + 1, 1, 0, os.urandom(100)))
        storage.commit()
    if start == 0:
        storage.close()
        storage = RocksStorage(sys.argv[1])
storage.sync()
os._exit(0)
"""
    subprocess.run(
        [sys.executable, "-c", code, str(zone)],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return zone


def damage(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def test_a_torn_last_record_is_what_a_crash_leaves_and_no_damage(filled: Path) -> None:
    log = max(filled.glob("rocksdb/*.log"))
    log.write_bytes(log.read_bytes()[:-7])

    storage = RocksStorage(filled)

    assert storage.space(0, 0).row_count() == 399
    assert len(storage.space(0, 0).scan(None, 1000, EVERYTHING)) == 399
    storage.close()


def test_damage_inside_the_log_is_refused_with_the_way_out(filled: Path) -> None:
    log = max(filled.glob("rocksdb/*.log"))
    damage(log, log.stat().st_size // 2)

    with pytest.raises(DatabaseRefused, match=r"rocksdb.*Corruption.*Way out: set the agent's"):
        RocksStorage(filled, synced=SYNCED)


def test_damage_behind_what_was_synced_is_what_a_power_loss_leaves(filled: Path) -> None:
    log = max(filled.glob("rocksdb/*.log"))
    damage(log, log.stat().st_size // 2)

    storage = RocksStorage(filled, synced=SYNCED // 2)

    rows = storage.space(0, 0).row_count()
    assert 200 < rows < 400
    assert len(storage.space(0, 0).scan(None, 1000, EVERYTHING)) == rows
    storage.close()


@pytest.mark.parametrize("kind", [5, 6, 7, 8, 11, 131])
def test_a_record_of_a_kind_that_the_engine_never_gets_past_is_refused(
    filled: Path, kind: int
) -> None:
    """At 5 the opening never ended."""
    log = max(filled.glob("rocksdb/*.log"))
    data = bytearray(log.read_bytes())
    second = 7 + int.from_bytes(data[4:6], "little")
    assert data[second + 6] == 1
    data[second + 6] = kind
    log.write_bytes(data)

    with pytest.raises(DatabaseRefused, match=r"rocksdb.*Corruption.*Way out: set the agent's"):
        RocksStorage(filled, synced=SYNCED)


def test_damage_in_a_table_stops_reading_instead_of_leaving_rows_out(filled: Path) -> None:
    table = min(filled.glob("rocksdb/*.sst"))
    damage(table, 500)
    storage = RocksStorage(filled)

    with pytest.raises(StorageBroken, match="cannot read"):
        storage.space(0, 0).scan(None, 1000, EVERYTHING)
    with pytest.raises(StorageBroken, match="cannot read"):
        storage.space(0, 0).get(b"0001")


@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_missing_file_of_the_database_is_refused_by_name(filled: Path, file: str) -> None:
    missing = min(filled.glob(f"rocksdb/{file}"))
    missing.unlink()

    with pytest.raises(DatabaseRefused, match=missing.name.lstrip("0")):
        RocksStorage(filled)


@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST-*"])
def test_a_damaged_file_of_the_database_is_refused(filled: Path, file: str) -> None:
    for found in filled.glob(f"rocksdb/{file}"):
        found.write_bytes(b"garbage" * 10)

    with pytest.raises(DatabaseRefused, match="Way out"):
        RocksStorage(filled)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "not readable"), ("\0\1", "not readable"), ('{"format": 4}', "format 4, this version")],
)
def test_an_unknown_format_is_refused(filled: Path, text: str, message: str) -> None:
    (filled / "format.json").write_text(text)

    with pytest.raises(DatabaseRefused, match=message):
        RocksStorage(filled)


def test_a_database_in_use_is_refused_by_its_lock(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "zone")

    with pytest.raises(DatabaseRefused, match="LOCK: held by another process"):
        RocksStorage(tmp_path / "zone")
    storage.close()
