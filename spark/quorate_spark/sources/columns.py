"""The columns that the data source reads, of rows and of updates."""

from collections.abc import Sequence

import pyarrow as pa

from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.sources.options import Options, choice

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
    found = tuple(by_name[name] for name in named) or COLUMNS
    return (*found, PROBLEM_COLUMN) if has_problem_rows(options) else found


def batch_of(columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Return a batch of all of COLUMNS."""
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, (_, _, kind) in zip(columns, COLUMNS, strict=True)],
        names=[name for name, _, _ in COLUMNS],
    )
