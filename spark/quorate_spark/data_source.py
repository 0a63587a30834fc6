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
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from quorate_spark.comparing.compare_rows import digest
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Unreadable, parse_addresses, read_cluster
from quorate_spark.reading.read_copies import StoredRow, read_copies, read_rows
from quorate_spark.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "quorate"

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

    def _columns(self) -> tuple[tuple[str, str, pa.DataType], ...]:
        return (*COLUMNS, PROBLEM_COLUMN) if self._problems_as_rows() else COLUMNS

    def _problems_as_rows(self) -> bool:
        return _choice(dict(self.options), "problems", ("raise", "rows")) == "rows"


class CopyReader(DataSourceReader):
    """Lists the copies, and reads one of them at a time.  Pickled to the workers."""

    def __init__(self, options: dict[str, str], problems_as_rows: bool) -> None:
        # Spark passes option names in lower case.
        self._zone = _required(options, "zone")
        self._agents = parse_addresses(_required(options, "agents"))
        # Read here, on the driver: workers get a tool's key and need no file.
        secret_file = _required(options, "secret_file")
        self._cluster = read_cluster(_required(options, "cluster"), secret_file)
        self._only = _partition_numbers(options.get("partitions", ""))
        self._digests = _choice(options, "values", ("full", "sha256")) == "sha256"
        self._problems_as_rows = problems_as_rows
        defaults = Settings()
        self._settings = Settings(
            connect_timeout_s=_number(options, "connect_timeout_s", defaults.connect_timeout_s),
            answer_timeout_s=_number(options, "answer_timeout_s", defaults.answer_timeout_s),
            chunk_bytes=int(_number(options, "chunk_bytes", defaults.chunk_bytes)),
        )

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
            for rows in read_rows(copy, self._zone, self._cluster, self._settings):
                if rows:
                    yield self._batch(copy, rows)
        except Unreadable as error:
            if not self._problems_as_rows:
                raise
            yield self._last_row(copy, str(error))
        else:
            if self._problems_as_rows:
                yield self._last_row(copy, "")

    def _batch(self, copy: CopySeen, rows: list[StoredRow]) -> pa.RecordBatch:
        keys, counters, terms, expiries, values = zip(*rows, strict=True)
        if self._digests:
            values = tuple(None if value is None else digest(value) for value in values)
        count = len(rows)
        columns = [
            keys,
            values,
            counters,
            terms,
            expiries,
            [copy.state.replica_index] * count,
            [copy.node] * count,
            [copy.state.partition] * count,
            [value is None for value in values],
        ]
        if self._problems_as_rows:
            columns.append([None] * count)
        return self._of_columns(columns)

    def _last_row(self, copy: CopySeen, problem: str) -> pa.RecordBatch:
        state = copy.state
        row = [None, None, 0, 0, 0, state.replica_index, copy.node, state.partition, False, problem]
        return self._of_columns([[field] for field in row])

    def _of_columns(self, columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
        kinds = (*COLUMNS, PROBLEM_COLUMN) if self._problems_as_rows else COLUMNS
        return pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, (_, _, kind) in zip(columns, kinds, strict=True)],
            names=[name for name, _, _ in kinds],
        )


def _required(options: dict[str, str], name: str) -> str:
    value = options.get(name, "").strip()
    if not value:
        raise Unreadable(f'option {name} is missing: add .option("{name}", …)')
    return value


def _choice(options: dict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise Unreadable(f"option {name} is {value!r}: write {' or '.join(allowed)}")
    return value


def _number(options: dict[str, str], name: str, default: float) -> float:
    text = options.get(name, "")
    try:
        return float(text) if text else default
    except ValueError as error:
        raise Unreadable(f"option {name} is {text!r}: write a number") from error


def _partition_numbers(text: str) -> frozenset[int] | None:
    if not text:
        return None
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError as error:
        raise Unreadable(
            f"option partitions is {text!r}: write numbers with commas, as in 0,3,7"
        ) from error
