"""Long values of one stored zone, for tests of the files that they are kept in."""

from pathlib import Path
from random import Random

import msgspec
from rocksdict import WriteBatch

from quorate.protocol.storage import Row
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.storage.rocks import RocksStorage

EVERYTHING = 1 << 30
LONG = 3 * LONG_BYTES + 17


def long_value(seed: int, size: int = LONG) -> bytes:
    return Random(seed).randbytes(size)


def update(counter: int, value: bytes | None, key: bytes = b"k") -> bytes:
    return msgspec.msgpack.encode((counter, 1, ((key, value, 0),)))


def write(
    storage: RocksStorage,
    counter: int,
    value: bytes | None,
    key: bytes = b"k",
    partition: int = 0,
) -> None:
    """Write the log entry and the row of one update."""
    storage.log_put(partition, counter, 1, update(counter, value, key))
    storage.space(partition, 0).put(key, Row(counter, 1, 0, value))


def files_of(folder: Path) -> dict[str, int]:
    """The long values' files, with their bytes."""
    found = folder / "values"
    return {each.name: each.stat().st_size for each in found.iterdir()} if found.exists() else {}


def owners_in(storage: RocksStorage) -> int:
    return sum(1 for _ in storage.database.items(b"w", b"x"))


def put_raw(storage: RocksStorage, rows: dict[bytes, bytes | None]) -> None:
    def batch() -> WriteBatch:
        made = WriteBatch(raw_mode=True)
        for key, data in rows.items():
            if data is None:
                made.delete(key)
            else:
                made.put(key, data)
        return made

    storage.database.write(batch)
