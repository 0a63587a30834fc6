"""The digest of rows that are columns: the same sum as `rows_digest` of rows (copies/totals.py).

What is hashed of each row is put together for all of them at once.  The hashes are added up in four
columns of 32 bits.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from quorate_spark.row_columns import Numbers, RowColumns

_HEAD = np.dtype([("counter", "<u8"), ("expires_at", "<u8"), ("key_bytes", "<u4")])


def columns_digest(rows: RowColumns, counters: Numbers | None = None) -> int:
    """Return the digest of live rows, not yet reduced; `counters`: in place of theirs."""
    if not len(rows):
        return 0
    heads = np.empty(len(rows), _HEAD)
    heads["counter"] = rows.counters if counters is None else counters
    heads["expires_at"] = rows.expiries
    heads["key_bytes"] = pc.binary_length(rows.keys)
    hashed = pc.binary_join_element_wise(_binary(heads), rows.keys, rows.values, b"")
    return sum(_sum_of_hashes(part) for part in _chunks(hashed))


def _binary(heads: Any) -> Any:
    offsets = np.arange(len(heads) + 1, dtype=np.int32) * _HEAD.itemsize
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(heads)]
    return pa.Array.from_buffers(pa.binary(), len(heads), buffers)


def _chunks(array: Any) -> list[Any]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]


def _sum_of_hashes(messages: Any) -> int:
    _, offsets, data = messages.buffers()
    start = messages.offset
    ends = np.frombuffer(offsets, np.int32)[start : start + len(messages) + 1].tolist()
    whole = data.to_pybytes()
    hashes = b"".join([xxh3_128_digest(whole[at:end]) for at, end in pairwise(ends)])
    words = np.frombuffer(hashes, ">u4").reshape(-1, 4).sum(axis=0, dtype=np.uint64)
    return sum(int(word) << 32 * (3 - place) for place, word in enumerate(words))
