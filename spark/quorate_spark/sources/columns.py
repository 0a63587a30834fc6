"""The columns that the data source reads, of rows and of updates."""

from collections.abc import Sequence

import pyarrow as pa

from quorate_spark.comparing.compare_rows import digest
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.row_columns import RowColumns
from quorate_spark.sources.options import Options, choice, may_tell_anew

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
TOLD_COLUMN = ("told", "string", pa.string())
UPDATE, ROW, ANEW = "update", "row", "anew"
"""Values of `told`: an update, a row as it was read, the marker before all rows of a partition."""

Column = tuple[str, str, pa.DataType]
"""Its name, its type in Spark and in Arrow."""


def has_problem_rows(options: Options) -> bool:
    """Return whether problems are to be told as rows.  Raises Unreadable."""
    return choice(options, "problems", ("raise", "rows")) == "rows"


def columns_of(options: Options) -> tuple[Column, ...]:
    """Return the columns that the options ask for, in their order.  Raises Unreadable."""
    named = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
    by_name = {column[0]: column for column in COLUMNS}
    unknown = [name for name in named if name not in by_name]
    if unknown or len(set(named)) < len(named):
        raise Unreadable(
            f"option columns is {options['columns']!r}: write some of {', '.join(by_name)}, each"
            " once"
        )
    found: tuple[Column, ...] = tuple(by_name[name] for name in named) or COLUMNS
    if may_tell_anew(options):
        found = (*found, TOLD_COLUMN)
    return (*found, PROBLEM_COLUMN) if has_problem_rows(options) else found


def batch_of(columns: Sequence[Column], values: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Return a batch of these columns; `values` may have more than they are."""
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, (_, _, kind) in zip(values, columns, strict=False)],
        names=[name for name, _, _ in columns],
    )


def batch_of_rows(
    columns: Sequence[Column], copy: CopySeen, rows: RowColumns, *, digests: bool
) -> pa.RecordBatch:
    """Return rows of a copy as a batch; `digests` in place of values."""
    values, count, state = rows.values, len(rows), copy.state
    if digests and values is not None:
        found = [None if value is None else digest(value) for value in values.to_pylist()]
        values = pa.array(found, pa.binary())
    every = {
        "key": rows.keys,
        "value": values,
        "counter": rows.counters,
        "term": rows.terms,
        "expires_at": rows.expiries,
        "tombstone": rows.tombstones,
    }
    same = {
        "replica_index": state.replica_index,
        "node": copy.node,
        "partition": state.partition,
        "told": ROW,
        "problem": None,
    }
    arrays = [
        pa.repeat(pa.scalar(same[name], kind), count)
        if name in same
        else pa.array(every[name], kind)
        for name, _, kind in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _, _ in columns])
