"""The columns that the data source reads, of rows and of updates."""

from collections.abc import Sequence

import pyarrow as pa

COLUMNS = (
    ("key", "binary", pa.binary()),
    ("value", "binary", pa.binary()),
    ("counter", "long", pa.int64()),
    ("term", "long", pa.int64()),
    ("expires_at", "long", pa.int64()),
    ("replica_index", "int", pa.int32()),
    ("node", "string", pa.string()),
    ("partition", "int", pa.int32()),
    ("tombstone", "boolean", pa.bool_()),
)
PROBLEM_COLUMN = ("problem", "string", pa.string())


def batch_of(columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Return a batch of these columns; the last one may be PROBLEM_COLUMN."""
    kinds = (*COLUMNS, PROBLEM_COLUMN)[: len(columns)]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, (_, _, kind) in zip(columns, kinds, strict=True)],
        names=[name for name, _, _ in kinds],
    )
