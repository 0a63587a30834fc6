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
- `columns`: only these, as in "key,counter"; values travel only if they are among them;
- `prefix`, `slots`: only keys that begin so, or that are in these slots, as in "0-99,5000";
- `pushdown`: `on` lets filters of a query narrow what agents are asked for; Spark must allow it
  (spark.sql.python.filterPushdown.enabled), and refuses it otherwise;
- `values`: `full` (default), or `sha256` for digests in place of values;
- `problems`: `raise` (default): a copy that cannot be read whole fails the query; or `rows`: adds a
  column, `problem`, and a last row per copy with a null key, whose problem is empty if the copy was
  read whole, else the reason.  A copy that is needed and is missing always fails the query;
- `max_mib_per_second_per_agent`: how much is read of each agent at most (default: no limit);
- `chunk_bytes`, `connect_timeout_s`, `answer_timeout_s`: see quorate_spark.settings.

Deleted keys whose tombstone a copy still keeps are rows with a null value and `tombstone` true.
`expires_at` is in wall milliseconds, 0 never; expired rows are present until their removal arrives
as an update.

`spark.readStream.format("quorate")` reads updates as they are made (sources/update_stream.py).  It
may have the column `told`, which is `row` in a batch read with the same options.
`df.write.format("quorate")` writes rows through the primaries (sources/row_writer.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from quorate.facts.keyspace import key_slot
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.read_columns import read_columns
from quorate_spark.reading.read_copies import read_copies
from quorate_spark.row_columns import RowColumns
from quorate_spark.sources.columns import batch_of_rows, columns_of, has_problem_rows
from quorate_spark.sources.narrowing import Ranges, wanted_of
from quorate_spark.sources.needed_copies import read_needed
from quorate_spark.sources.options import Options, choice, source_of
from quorate_spark.sources.row_writer import RowSink, RowWriter, StreamRowWriter
from quorate_spark.sources.update_stream import UpdateReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "quorate"


class CopyPartition(InputPartition):
    """One copy to read, of these ranges of keys; `slots`: only rows of these, None: all."""

    def __init__(self, copy: CopySeen, ranges: Ranges, slots: frozenset[int] | None) -> None:
        super().__init__((copy.state.partition, copy.node))
        self.copy = copy
        self.ranges = ranges
        self.slots = slots


class QuorateDataSource(DataSource):
    """The data source of `spark.read.format("quorate")`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns above, with `problem` if it was asked for."""
        return ", ".join(f"`{name}` {kind}" for name, kind, _ in columns_of(dict(self.options)))

    def reader(self, schema: "StructType") -> "CopyReader":
        """Return a reader over all copies."""
        options = dict(self.options)
        is_pushed = choice(options, "pushdown", ("off", "on")) == "on"
        return (FilteredCopyReader if is_pushed else CopyReader)(options)

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


class CopyReader(DataSourceReader):
    """Lists the copies, and reads one of them at a time.  Pickled to the workers."""

    def __init__(self, options: Options) -> None:
        source = source_of(options)
        self._zone, self._agents = source.zone, source.agents
        self._cluster, self._settings = source.cluster, source.settings
        self._wanted = wanted_of(options)
        self._columns = columns_of(options)
        self._digests = choice(options, "values", ("full", "sha256")) == "sha256"
        self._problems_as_rows = has_problem_rows(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per storage partition and copy, in that order.

        Raises Unreadable if a copy that is needed is missing.
        """
        place = self._zone, self._agents, self._cluster, self._settings
        wanted = self._wanted
        reading = read_needed(lambda: read_copies(*place), self._zone, wanted)
        count = reading.partitions
        return [
            CopyPartition(copy, ranges, wanted.slots_left(copy, count))
            for copies in reading.owned.values()
            for copy in copies
            if (ranges := wanted.ranges_of(copy, count))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the copy's rows; none for the partition that Spark makes up if there are none."""
        if not isinstance(partition, CopyPartition):
            return
        copy, ranges, slots = partition.copy, partition.ranges, partition.slots
        values = any(name == "value" for name, _, _ in self._columns)
        zone, cluster, settings = self._zone, self._cluster, self._settings
        try:
            for rows in read_columns(copy, zone, cluster, settings, ranges, values=values):
                found = rows if slots is None else in_slots(rows, slots)
                if len(found):
                    yield batch_of_rows(self._columns, copy, found, digests=self._digests)
        except Unreadable as error:
            if not self._problems_as_rows:
                raise
            yield self._last_row(copy, str(error))
        else:
            if self._problems_as_rows:
                yield self._last_row(copy, "")

    def _last_row(self, copy: CopySeen, problem: str) -> pa.RecordBatch:
        state = copy.state
        row = {
            "key": None,
            "value": None,
            "replica_index": state.replica_index,
            "node": copy.node,
            "partition": state.partition,
            "tombstone": False,
            "told": None,
            "problem": problem,
        }
        columns = self._columns
        return pa.RecordBatch.from_arrays(
            [pa.array([row.get(name, 0)], kind) for name, _, kind in columns],
            names=[name for name, _, _ in columns],
        )


class FilteredCopyReader(CopyReader):
    """A reader to which Spark hands the filters of a query.

    Spark refuses this method where its setting does not allow filters to be handed over.
    """

    def pushFilters(  # noqa: N802  # as Spark calls it
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Ask agents only for what may pass these filters; Spark applies all of them again."""
        self._wanted = self._wanted.narrowed(filters)
        return filters


def in_slots(rows: RowColumns, slots: frozenset[int]) -> RowColumns:
    """Return the rows whose keys are in these slots."""
    return rows.where(np.array([key_slot(key) in slots for key in rows.keys.to_pylist()], np.bool_))
