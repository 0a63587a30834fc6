"""Rows of a copy as columns: Arrow and numpy arrays over the bytes that an agent sent.

Nothing here costs Python work for each row, but `of_rows`, which is for agents of earlier versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.facts.keyspace import RESERVED
from quorate.protocol.messages.tools import CopyColumns
from quorate.protocol.storage import ROW_HEAD

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_HEAD = np.dtype(
    [("counter", ">u8"), ("term", ">u8"), ("expires_at", ">u8"), ("kind", "u1")], align=False
)
assert _HEAD.itemsize == ROW_HEAD.size

BATCH_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("counter", pa.int64()),
        ("term", pa.int64()),
        ("expires_at", pa.int64()),
        ("value", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows in key order.  `values`: null for a tombstone; None: they were not asked for."""

    keys: Any
    counters: Numbers
    terms: Numbers
    expiries: Numbers
    tombstones: Flags
    values: Any

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.counters)

    @classmethod
    def of_told(cls, told: CopyColumns, *, values: bool) -> Self:
        """Return what an agent told.  Raises ValueError if its columns do not fit together."""
        heads = np.frombuffer(told.heads, _HEAD)
        if len(heads) != told.rows:
            raise ValueError(f"{told.rows} rows with {len(heads)} heads")
        tombstones = heads["kind"] != 0
        return cls(
            _binary(told.rows, told.keys, told.key_sizes, None),
            heads["counter"].astype(np.int64),
            heads["term"].astype(np.int64),
            heads["expires_at"].astype(np.int64),
            tombstones,
            _binary(told.rows, told.values, told.value_sizes, tombstones) if values else None,
        )

    @classmethod
    def of_rows(
        cls, rows: Sequence[tuple[bytes, int, int, int, bytes | None]], *, values: bool
    ) -> Self:
        """Return rows (key, counter, term, expires_at, value) as columns."""
        keys, counters, terms, expiries, found = zip(*rows, strict=True) if rows else ((),) * 5
        return cls(
            pa.array(keys, pa.binary()),
            np.array(counters, np.int64),
            np.array(terms, np.int64),
            np.array(expiries, np.int64),
            np.array([value is None for value in found], np.bool_),
            pa.array(found, pa.binary()) if values else None,
        )

    def cut(self, start: int, end: int) -> "RowColumns":
        """Return the rows from `start` up to `end`, without a copy."""
        return RowColumns(
            self.keys[start:end],
            self.counters[start:end],
            self.terms[start:end],
            self.expiries[start:end],
            self.tombstones[start:end],
            None if self.values is None else self.values[start:end],
        )

    def where(self, mask: Flags) -> "RowColumns":
        """Return the rows for which `mask` is true."""
        return self.at(np.flatnonzero(mask))

    def at(self, places: Numbers) -> "RowColumns":
        """Return the rows at these places."""
        found = pa.array(places)
        return RowColumns(
            self.keys.take(found),
            self.counters[places],
            self.terms[places],
            self.expiries[places],
            self.tombstones[places],
            None if self.values is None else self.values.take(found),
        )

    @classmethod
    def of_batch(cls, batch: Any) -> Self:
        """Return what `to_batch` made."""
        keys, counters, terms, expiries, values = batch.columns
        return cls(
            keys,
            counters.to_numpy(),
            terms.to_numpy(),
            expiries.to_numpy(),
            values.is_null().to_numpy(zero_copy_only=False),
            values,
        )

    def to_batch(self) -> Any:
        """Return the rows, which have values, as a record batch of BATCH_SCHEMA."""
        numbers = (self.counters, self.terms, self.expiries)
        columns = [self.keys, *map(pa.array, numbers), self.values]
        return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA)

    @property
    def size(self) -> int:
        """The bytes of keys and values."""
        sizes = [pc.sum(pc.binary_length(column)).as_py() for column in (self.keys, self.values)]
        return sum(size or 0 for size in sizes)

    def rows(self) -> list[tuple[bytes, int, int, int, bytes | None]]:
        """Return (key, counter, term, expires_at, value) of each row; they have values."""
        return list(
            zip(
                self.keys.to_pylist(),
                self.counters.tolist(),
                self.terms.tolist(),
                self.expiries.tolist(),
                self.values.to_pylist(),
                strict=True,
            )
        )

    def key(self, place: int) -> bytes:
        """Return one key."""
        found: bytes = self.keys[place].as_py()
        return found

    def count_upto(self, key: bytes) -> int:
        """Return how many rows have this key or one below it."""
        low, high = 0, len(self)
        if high and self.key(high - 1) <= key:
            return high
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) <= key:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def keys_rise(self) -> bool:
        """Whether each key is above the one before it."""
        if len(self) < 2:
            return True
        return bool(pc.all(pc.less(self.keys[:-1], self.keys[1:])).as_py())


def are_reserved(rows: RowColumns) -> Flags:
    """Return which rows are internal ones."""
    found: Flags = pc.starts_with(rows.keys, RESERVED).to_numpy(zero_copy_only=False)
    return found


def joined(parts: Sequence[RowColumns]) -> RowColumns:
    """Return the rows of all parts, in this order; there is at least one."""
    if len(parts) == 1:
        return parts[0]
    has_values = parts[0].values is not None
    return RowColumns(
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.counters for part in parts]),
        np.concatenate([part.terms for part in parts]),
        np.concatenate([part.expiries for part in parts]),
        np.concatenate([part.tombstones for part in parts]),
        pa.concat_arrays([part.values for part in parts]) if has_values else None,
    )


def _binary(rows: int, data: bytes, sizes: bytes, nulls: Flags | None) -> Any:
    """Return an array of `rows` byte strings, which are one after the other in `data`."""
    each = np.frombuffer(sizes, "<u4")
    if len(each) != rows:
        raise ValueError(f"{rows} rows with {len(each)} sizes")
    ends = np.cumsum(each, dtype=np.int64)
    if (int(ends[-1]) if rows else 0) != len(data):
        raise ValueError(f"sizes that add up to {ends[-1] if rows else 0} for {len(data)} bytes")
    offsets = np.zeros(rows + 1, np.int32)
    offsets[1:] = ends  # a message is too short for more
    validity = None
    if nulls is not None and nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)
