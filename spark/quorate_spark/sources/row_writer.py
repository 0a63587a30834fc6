"""Writes the rows of a DataFrame into a zone: each replaces the row that its key has.

Every task writes its rows through the primaries, as ordinary updates, and ends when a quorum of the
copies has them.  A task that Spark runs again writes only what differs from the zone, so rows are
the same after any number of attempts.  Rows of tasks that ended stay when the job fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from quorate.facts.keyspace import is_reserved, printable
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.sources.options import Options, Source, number, source_of
from quorate_spark.writing.batches import RowBatches
from quorate_spark.writing.primaries import Primaries

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

WAIT_S = 60.0
"""How long one batch of rows may wait for its primary and a quorum."""
SLICE_ROWS = 1000
"""Rows of a batch of Spark's that are made Python objects at once."""
OVERWRITE_KEYS = "keys"
_BYTES = ("binary", "string")
_TYPES = {"key": _BYTES, "value": _BYTES, "expires_at": ("bigint", "int")}


@dataclass
class RowsWritten(WriterCommitMessage):
    """Rows that one task has written, and the bytes of their keys and values."""

    rows: int
    bytes: int


class RowSink:
    """The zone to which tasks write.  It is made on the driver, and pickled to the workers."""

    def __init__(self, options: Options, schema: "StructType", *, overwrites: bool) -> None:
        source = source_of(options)
        if overwrites:
            _check_overwrite(options, source.zone)
        _check_columns(schema)
        self._wait_s = number(options, "wait_s", WAIT_S)
        self._settings = source.settings
        self._copies = _zone_of(source)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one task; a quorum has them afterwards.  Raises Unreadable."""
        written = RowsWritten(0, 0)
        copies = self._copies
        with AgentLinks(copies.cluster, self._settings) as links:
            primaries = Primaries(copies, links, self._wait_s)
            batches = RowBatches(primaries, copies.zone, copies.partitions, replaces=True)
            for key, value, expires_at in _rows(iterator):
                batches.add(key, value, expires_at)
                written.rows += 1
                written.bytes += len(key) + len(value)
            batches.finish()
        return written


class RowWriter(DataSourceArrowWriter):
    """Writes a DataFrame.  There is nothing to commit or to undo."""

    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one task."""
        return self._sink.write(iterator)


class StreamRowWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a stream; one that is repeated changes nothing."""

    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one task."""
        return self._sink.write(iterator)


def _zone_of(source: Source) -> ZoneCopies:
    """Return the zone with its number of partitions.  Raises Unreadable if one is missing.

    It has the zone's uid where the agents tell one: no task writes into a later zone of its name.
    """
    asked = ZoneCopies(source.zone, source.agents, source.cluster)
    reading = asked.read_answering(source.settings)
    problem = asked.absence(reading)
    if problem:
        raise Unreadable(problem)
    partitions = reading.partitions or len(reading.owned)
    told = reading.uids - {""}
    uid = min(told) if len(told) == 1 else ""
    return ZoneCopies(source.zone, source.agents, source.cluster, partitions, uid=uid)


def _check_overwrite(options: Options, zone: str) -> None:
    """Raise Unreadable unless the user means to overwrite keys, not the whole zone."""
    value = options.get("overwrite", "")
    if value == OVERWRITE_KEYS:
        return
    way_out = (
        'write .mode("append"), or add .option("overwrite", "keys"): both replace the rows of the'
        " DataFrame's keys and leave all other keys of the zone as they are"
    )
    if value:
        raise Unreadable(
            f"option overwrite is {value!r}, and a write deletes no keys of zone {zone}: {way_out}."
            "  To delete every key of the zone, send it FLUSHALL"
        )
    raise Unreadable(
        f"mode is 'overwrite' and option overwrite is missing: Spark means that zone {zone} shall"
        f" have no other keys afterwards, and a write deletes none: {way_out}"
    )


def _check_columns(schema: "StructType") -> None:
    """Raise Unreadable unless the columns can be written."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in ("key", "value"):
        if name not in kinds:
            raise Unreadable(f'column {name} is missing: name it, as in .selectExpr("… as {name}")')
    others = [name for name in kinds if name not in _TYPES]
    if others:
        raise Unreadable(
            f"column {', '.join(others)} cannot be written: a row is key, value and expires_at;"
            ' leave others out, as in .select("key", "value")'
        )
    for name, kind in kinds.items():
        if kind not in _TYPES[name]:
            raise Unreadable(f"column {name} is {kind}: cast it to {' or '.join(_TYPES[name])}")


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and expiry of each row.  Raises Unreadable for one that cannot be."""
    for batch in batches:
        for start in range(0, batch.num_rows, SLICE_ROWS):
            part = batch.slice(start, SLICE_ROWS)
            keys = part.column("key").cast(pa.binary()).to_pylist()
            values = part.column("value").cast(pa.binary()).to_pylist()
            expiries = (
                part.column("expires_at").to_pylist()
                if "expires_at" in part.schema.names
                else [0] * len(keys)
            )
            for key, value, expires_at in zip(keys, values, expiries, strict=True):
                _check_row(key, value, expires_at)
                yield key, value, expires_at or 0


def _check_row(key: bytes | None, value: bytes | None, expires_at: int | None) -> None:
    if key is None:
        raise Unreadable(
            'column key is null in a row: leave it out, as in .where("key is not null")'
        )
    if value is None:
        raise Unreadable(
            f"column value is null, for key {printable(key)}: a write deletes no keys; leave the"
            ' row out, as in .where("value is not null")'
        )
    if is_reserved(key):
        raise Unreadable(f"key {printable(key)} begins as internal keys do: name it otherwise")
    if expires_at is not None and expires_at < 0:
        raise Unreadable(
            f"column expires_at is {expires_at}, for key {printable(key)}: write milliseconds since"
            " 1970, or 0 for a row that does not expire"
        )
