"""The Spark data source `quorate`: every row of every copy of a zone.

    spark.dataSource.register(QuorateDataSource)
    options = {
        "cluster": "main",
        "secret_file": "secrets/main.json",
        "zone": "sessions",
        "agents": "host:port,host:port",
    }
    spark.read.format("quorate").options(**options).load()

There is one Spark partition per storage partition and copy, with Arrow batches of one chunk each.
Options:

- `zone`: the zone's name; `agents`: the peer ports of all agents; `cluster`: its name, which the
  agents compare with theirs; `secret_file`: the file of the cluster's secret, on the driver;
- `partitions`: only these storage partitions, as in "0,3,7" (default: all);
- `values`: `full` (default), or `sha256` for digests in place of values;
- `problems`: `raise` (default): a copy that cannot be read whole fails the query; or `rows`: adds a
  column, `problem`, and a last row per copy with a null key, whose problem is empty if the copy was
  read whole, else the reason;
- `chunk_bytes`, `connect_timeout_s`, `answer_timeout_s`: see quorate_spark.settings.

Deleted keys whose tombstone a copy still keeps are rows with a null value and `tombstone` true.
`expires_at` is in wall milliseconds, 0 never; expired rows are present until their removal arrives
as an update.

`spark.readStream.format("quorate")` reads updates as they are made (sources/update_stream.py).
`df.write.format("quorate")` writes rows through the primaries (sources/row_writer.py).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from quorate_spark.comparing.compare_rows import digest
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.read_columns import read_columns
from quorate_spark.reading.read_copies import read_copies
from quorate_spark.row_columns import RowColumns
from quorate_spark.sources.columns import COLUMNS, PROBLEM_COLUMN, batch_of
from quorate_spark.sources.options import choice, partition_numbers, source_of
from quorate_spark.sources.row_writer import RowSink, RowWriter, StreamRowWriter
from quorate_spark.sources.update_stream import UpdateReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "quorate"


class CopyPartition(InputPartition):
    """One copy to read."""

    def __init__(self, copy: CopySeen) -> None:
        super().__init__((copy.state.partition, copy.node))
        self.copy = copy


class QuorateDataSource(DataSource):
    """The data source of `spark.read.format("quorate")`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns above, with `problem` if it was asked for."""
        return ", ".join(f"`{name}` {kind}" for name, kind, _ in self._columns())

    def reader(self, schema: "StructType") -> "CopyReader":
        """Return a reader over all copies."""
        return CopyReader(dict(self.options), self._problems_as_rows())

    def streamReader(self, schema: "StructType") -> UpdateReader:  # noqa: N802  # as Spark calls it
        """Return a reader of updates as they are made."""
        return UpdateReader(dict(self.options))

    def writer(self, schema: "StructType", overwrite: bool) -> RowWriter:
        """Return a writer of rows; each replaces the row of its key."""
        return RowWriter(RowSink(dict(self.options), schema, overwrites=overwrite))

    def streamWriter(  # noqa: N802  # as Spark calls it
        self, schema: "StructType", overwrite: bool
    ) -> StreamRowWriter:
        """Return a writer of the rows of a stream; `overwrite`: output mode complete."""
        return StreamRowWriter(RowSink(dict(self.options), schema, overwrites=overwrite))

    def _columns(self) -> tuple[tuple[str, str, pa.DataType], ...]:
        return (*COLUMNS, PROBLEM_COLUMN) if self._problems_as_rows() else COLUMNS

    def _problems_as_rows(self) -> bool:
        return choice(dict(self.options), "problems", ("raise", "rows")) == "rows"


class CopyReader(DataSourceReader):
    """Lists the copies, and reads one of them at a time.  Pickled to the workers."""

    def __init__(self, options: dict[str, str], problems_as_rows: bool) -> None:
        source = source_of(options)
        self._zone, self._agents = source.zone, source.agents
        self._cluster, self._settings = source.cluster, source.settings
        self._only = partition_numbers(options)
        self._digests = choice(options, "values", ("full", "sha256")) == "sha256"
        self._problems_as_rows = problems_as_rows

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per storage partition and copy, in that order."""
        reading = read_copies(self._zone, self._agents, self._cluster, self._settings)
        return [
            CopyPartition(copy)
            for partition, copies in reading.owned.items()
            if self._only is None or partition in self._only
            for copy in copies
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the copy's rows."""
        assert isinstance(partition, CopyPartition)
        copy = partition.copy
        try:
            for rows in read_columns(copy, self._zone, self._cluster, self._settings):
                yield self._batch(copy, rows)
        except Unreadable as error:
            if not self._problems_as_rows:
                raise
            yield self._last_row(copy, str(error))
        else:
            if self._problems_as_rows:
                yield self._last_row(copy, "")

    def _batch(self, copy: CopySeen, rows: RowColumns) -> pa.RecordBatch:
        values = rows.values
        if self._digests:
            found = [None if value is None else digest(value) for value in values.to_pylist()]
            values = pa.array(found, pa.binary())
        columns = {
            "key": rows.keys,
            "value": values,
            "counter": pa.array(rows.counters),
            "term": pa.array(rows.terms),
            "expires_at": pa.array(rows.expiries),
            "replica_index": repeated(copy.state.replica_index, pa.int32(), len(rows)),
            "node": repeated(copy.node, pa.string(), len(rows)),
            "partition": repeated(copy.state.partition, pa.int32(), len(rows)),
            "tombstone": pa.array(rows.tombstones),
        }
        if self._problems_as_rows:
            columns["problem"] = pa.nulls(len(rows), pa.string())
        return pa.RecordBatch.from_pydict(columns)

    def _last_row(self, copy: CopySeen, problem: str) -> pa.RecordBatch:
        state = copy.state
        row = [None, None, 0, 0, 0, state.replica_index, copy.node, state.partition, False, problem]
        return batch_of([[field] for field in row])


def repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    """Return an array that has the value so often."""
    return pa.repeat(pa.scalar(value, kind), count)
