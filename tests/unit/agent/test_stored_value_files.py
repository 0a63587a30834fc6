"""Files of long values that are stored: damaged ones, and those of earlier formats."""

import json
import os
from pathlib import Path

import pytest

from quorate.protocol.storage import Row
from quorate_agent.storage import DatabaseRefused, StorageBroken, database
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.storage.rocks import RocksStorage
from quorate_lone_agent.long_values import (
    EVERYTHING,
    LONG,
    files_of,
    long_value,
    owners_in,
    put_raw,
    update,
    write,
)

# --- damage


def test_a_file_that_is_missing_or_too_short_refuses_the_database(
    storage: RocksStorage, tmp_path: Path
) -> None:
    write(storage, 1, long_value(1))
    storage.commit()
    storage.close()
    (file,) = (tmp_path / "zone" / "values").iterdir()
    size = file.stat().st_size
    os.truncate(file, size - 1)

    with pytest.raises(DatabaseRefused, match=rf"1: {size - 1} bytes, it had {size}.*Way out"):
        RocksStorage(tmp_path / "zone")
    file.unlink()
    with pytest.raises(DatabaseRefused, match=r"values/1: missing, it had \d+ bytes\. Way out"):
        RocksStorage(tmp_path / "zone")


def test_a_file_with_other_bytes_is_damage(storage: RocksStorage, tmp_path: Path) -> None:
    write(storage, 1, long_value(1))
    storage.commit()
    (file,) = (tmp_path / "zone" / "values").iterdir()
    with file.open("r+b") as opened:
        opened.seek(LONG // 2)
        opened.write(b"damage")

    with pytest.raises(StorageBroken, match=r"values/1: \d+ of \d+ bytes from 13 on.*Way out"):
        storage.space(0, 0).get(b"k")


def test_a_file_that_is_not_ours_to_remove_stays_until_the_zone_is_written(
    storage: RocksStorage, tmp_path: Path
) -> None:
    """Opening alone, to look what is there, removes nothing."""
    write(storage, 1, long_value(1))
    storage.commit()
    storage.close()
    folder = tmp_path / "zone"
    (folder / "values" / "77").write_bytes(b"of a turn that was lost")
    storage.__init__(folder)
    assert sorted(files_of(folder)) == ["1", "77"]

    write(storage, 2, long_value(2), b"other")
    storage.commit()
    assert sorted(files_of(folder)) == ["1", "77", "78"]
    storage.sync()
    assert sorted(files_of(folder)) == ["1", "78"]


# --- earlier formats


def test_only_a_folder_with_a_long_value_is_refused_by_versions_that_know_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "zone" / "format.json"
    storage = RocksStorage(tmp_path / "zone")
    storage.space(0, 0).put(b"k", Row(1, 1, 0, bytes(LONG_BYTES)))
    storage.commit()
    assert json.loads(said.read_text()) == {"format": 1}
    assert files_of(tmp_path / "zone") == {}
    storage.close()

    storage = RocksStorage(tmp_path / "zone")
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, bytes(LONG_BYTES))
    write(storage, 2, bytes(LONG_BYTES + 1))
    storage.commit()
    storage.close()

    assert json.loads(said.read_text()) == {"format": 3}
    monkeypatch.setattr(database, "FORMAT_VERSION", 2)
    with pytest.raises(DatabaseRefused, match=r"format 3, this version reads up to 2\. Way out"):
        RocksStorage(tmp_path / "zone")


def test_values_in_pieces_of_an_earlier_version_are_read_and_go_when_they_are_replaced(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "zone"
    storage = RocksStorage(folder)
    value = long_value(1)
    row_key = b"r" + bytes(6) + b"k"
    log_key = b"l" + bytes(2) + (1).to_bytes(8, "big") + (1).to_bytes(8, "big")
    stored: dict[bytes, bytes | None] = {}
    for number, owner, data in (
        (1, row_key, value),
        (2, log_key, update(1, value)),
        (3, b"", long_value(3)),  # of a turn that was lost
    ):
        name = number.to_bytes(8, "big")
        stored[b"w" + name] = owner
        for at in range(0, len(data), 1 << 18):
            stored[b"v" + name + (at >> 18).to_bytes(4, "big")] = data[at : at + (1 << 18)]
    header = (1).to_bytes(8, "big") + (1).to_bytes(8, "big") + bytes(8) + b"\2"
    stored[row_key] = header + (1).to_bytes(8, "big") + len(value).to_bytes(8, "big")
    size = len(update(1, value))
    stored[log_key] = b"\xc1" + (2).to_bytes(8, "big") + size.to_bytes(8, "big")
    put_raw(storage, stored)
    storage.close()
    (folder / "format.json").write_text('{"format": 2}')

    storage = RocksStorage(folder)
    assert storage.space(0, 0).get(b"k") == Row(1, 1, 0, value)
    assert storage.log_read(0, 1, 9, EVERYTHING) == [(1, 1, update(1, value))]
    assert storage.log_bytes(0) == size
    write(storage, 2, long_value(2))
    storage.commit()
    assert owners_in(storage) == 3
    storage.log_cut(0, 1)
    storage.commit()
    assert owners_in(storage) == 2
    assert list(storage.database.items(b"v", b"w")) == []
    storage.close()
    storage = RocksStorage(folder)
    assert storage.space(0, 0).get(b"k") == Row(2, 1, 0, long_value(2))
    assert storage.log_read(0, 2, 9, EVERYTHING) == [(2, 1, update(2, long_value(2)))]
    storage.close()


def test_a_value_of_which_a_piece_is_missing_is_damage(storage: RocksStorage) -> None:
    header = (1).to_bytes(8, "big") + (1).to_bytes(8, "big") + bytes(8) + b"\2"
    row_key = b"r" + bytes(6) + b"k"
    name = (1).to_bytes(8, "big")
    put_raw(
        storage,
        {
            row_key: header + name + LONG.to_bytes(8, "big"),
            b"w" + name: row_key,
            b"v" + name + bytes(4): bytes(LONG - 1),
        },
    )

    with pytest.raises(StorageBroken, match=r"rocksdb: of value 1 there are \d+ bytes.*Way out"):
        storage.space(0, 0).get(b"k")
