"""The small durable records of a copy: its own record, and its promise, which outlives it.

Both are written in the batch of the turn.
"""

from collections.abc import Collection

import msgspec

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder
from quorate.protocol.storage import Storage

_encode = msgspec.msgpack.Encoder().encode


class CopyRecord(msgspec.Struct, frozen=True, array_like=True):
    """The durable state of a copy besides rows and log."""

    generation: int
    lineage: Lineage
    lwm: int
    log_from: int
    row: PartitionRow | None
    prepared: PartitionRow | None = None
    prepared_migration: str = ""


class PromiseRecord(msgspec.Struct, frozen=True, array_like=True):
    """Promise, row version and generation: they outlive the copy as long as the store exists.

    `row`: for an evicted copy, the row that evicted it, if it was kept.
    """

    term: int
    holder: Holder | None
    version: int
    generation: int
    row: PartitionRow | None = None


class KeptRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows that a copy had in a line of history which a reset left; only tools read them.

    - `generation`: of their space
    - `since_ms`: the wall time at which they were set aside
    - `reset_term`: the term that the reset began
    - `last_term`, `lwm`: the copy's position then
    - `rows`, `bytes`: live ones, without tombstones
    """

    generation: int
    since_ms: int
    reset_term: int
    last_term: int
    lwm: int
    rows: int = 0
    bytes: int = 0


ASIDE_KEPT_MS = 24 * 3_600_000
"""How long rows are kept that a reset has left."""

_decode_copy = msgspec.msgpack.Decoder(CopyRecord).decode
_decode_promise = msgspec.msgpack.Decoder(PromiseRecord).decode
_decode_kept_rows = msgspec.msgpack.Decoder(tuple[KeptRows, ...]).decode


def recorded_partitions(storage: Storage) -> list[int]:
    """Return the partitions with a record: of a copy, or of what is left of one that is gone."""
    names = [name for kind in (b"c", b"p", b"a") for name, _ in storage.records(kind)]
    return sorted({int(name[1:]) for name in names})


def read_copy(storage: Storage, partition: int) -> CopyRecord | None:
    """Return the copy's record; None if there is no copy."""
    data = storage.record_get(_copy_name(partition))
    return _decode_copy(data) if data is not None else None


def write_copy(storage: Storage, partition: int, record: CopyRecord) -> None:
    """Put the copy's record into the batch."""
    storage.record_put(_copy_name(partition), _encode(record))


def drop_copy(storage: Storage, partition: int) -> None:
    """Remove the copy's record, with the batch."""
    storage.record_drop(_copy_name(partition))


def read_promise(storage: Storage, partition: int) -> PromiseRecord | None:
    """Return the promise; None if none was ever given."""
    data = storage.record_get(_promise_name(partition))
    return _decode_promise(data) if data is not None else None


def write_promise(storage: Storage, partition: int, record: PromiseRecord) -> None:
    """Put the promise into the batch."""
    storage.record_put(_promise_name(partition), _encode(record))


def read_kept_rows(storage: Storage, partition: int) -> tuple[KeptRows, ...]:
    """Return what was set aside of the partition, oldest first."""
    data = storage.record_get(_kept_rows_name(partition))
    return _decode_kept_rows(data) if data is not None else ()


def write_kept_rows(storage: Storage, partition: int, kept: tuple[KeptRows, ...]) -> None:
    """Put the list of what is set aside into the batch."""
    if kept:
        storage.record_put(_kept_rows_name(partition), _encode(kept))
    else:
        storage.record_drop(_kept_rows_name(partition))


def record_names(partitions: Collection[int]) -> frozenset[bytes]:
    """Return the names of all records of these partitions."""
    return frozenset(
        [
            name
            for each in partitions
            for name in (_copy_name(each), _promise_name(each), _kept_rows_name(each))
        ]
    )


def _copy_name(partition: int) -> bytes:
    return b"c%05d" % partition


def _kept_rows_name(partition: int) -> bytes:
    return b"a%05d" % partition


def _promise_name(partition: int) -> bytes:
    return b"p%05d" % partition
