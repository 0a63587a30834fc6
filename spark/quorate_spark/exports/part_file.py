"""Parquet files with the rows of one partition, in key order.

Columns: `partition`, `key`, `value` (as stored: docs/commands.md), `counter` and `term` of the
update that wrote the row, `expires_at` (wall milliseconds, 0 never).
"""

import re
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from quorate_spark.exports.encryption import Cipher, check_magic
from quorate_spark.exports.manifest import Content, PartTold
from quorate_spark.exports.target import Target, TargetRefused, TargetUnreadable, first_line

if TYPE_CHECKING:
    from quorate_spark.row_columns import RowColumns

GROUP_ROWS_MAX = 100_000
GROUP_BYTES_MAX = 32 * 1024 * 1024
"""A row group ends with whichever comes first: it is held in memory, also when it is read."""
PIECE_BYTES_MAX = 8 * 1024 * 1024
"""Rows are added in pieces of this size, or one row: by so much a group may have more."""
FOREIGN_GROUP_BYTES_MAX = 256 * 1024 * 1024
"""A row group with more is of no export, but for single rows of that size."""
READ_ROWS = 16_384
READ_BYTES = 8 * 1024 * 1024
_IN_DICTIONARIES = ["partition", "term", "expires_at"]
"""The columns whose values recur."""
_NAME = re.compile(r"partition-\d{5}-[0-9a-f]{8}\.parquet")


class LiveRow(NamedTuple):
    """A row that clients see; its fields are the columns."""

    key: bytes
    value: bytes
    counter: int
    term: int
    expires_at: int


def file_name(partition: int, export_id: str) -> str:
    """Return the name of a partition's file."""
    return f"partition-{partition:05}-{export_id}.parquet"


def is_file_name(name: str) -> bool:
    """Return whether some export could have written a file of this name."""
    return _NAME.fullmatch(name) is not None


class PartWriter:
    """Writes the rows of one partition, between `with` and its end.

    `encryption`: pyarrow's properties; None: in the clear.
    """

    def __init__(self, file: Any, partition: int, encryption: Any = None) -> None:
        import pyarrow.parquet as pq

        self.content = Content()
        self._partition = partition
        self._schema = _schema()
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=_IN_DICTIONARIES,
            write_page_checksum=True,  # terms are in no digest
            encryption_properties=encryption,
        )
        self._waiting: list[RowColumns] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what is left, and the end of the file."""
        if error is None:
            self._write_group()
        self._writer.close()

    def add(self, rows: "RowColumns") -> None:
        """Add rows with values; keys rise."""
        from quorate_spark.exports.row_digests import columns_digest

        if not len(rows):
            return
        size = rows.size
        if size > PIECE_BYTES_MAX and len(rows) > 1:
            middle = len(rows) // 2
            self.add(rows.cut(0, middle))
            self.add(rows.cut(middle, len(rows)))
            return
        without_counters = columns_digest(rows, rows.counters * 0)
        self.content.add_all(Content(len(rows), size, without_counters))
        self._waiting.append(rows)
        self._rows += len(rows)
        self._bytes += size
        if self._rows >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        batches = [self._batch(rows) for rows in self._waiting]
        table = pa.Table.from_batches(batches, self._schema)
        self._writer.write_table(table, row_group_size=max(self._rows, 1))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def _batch(self, rows: "RowColumns") -> Any:
        import pyarrow as pa

        columns = [
            pa.repeat(pa.scalar(self._partition, pa.int32()), len(rows)),
            rows.keys,
            rows.values,
            *map(pa.array, (rows.counters, rows.terms, rows.expiries)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def read_part(target: Target, part: PartTold, cipher: Cipher | None) -> Iterator[LiveRow]:
    """Yield the rows of a partition, and check at the end that they are those of the manifest.

    `cipher`: what decrypts them; None: they are in the clear.

    Raises TargetUnreadable if it cannot be read, TargetRefused if it is there and is not as it was.
    """
    content = Content()
    try:
        for columns in _columns(target, part, cipher):
            content.add(columns[0], columns[1], columns[4])
            yield from map(LiveRow._make, zip(*columns, strict=True))
    except TargetUnreadable as error:
        if not _is_damaged(target, part, cipher):
            raise
        what = "is damaged" if cipher is None else "was changed, or is another file"
        raise TargetRefused(f"{target.text}: {part.file} {what}: {error}") from error
    except (TypeError, ValueError) as error:
        raise TargetRefused(f"{target.text}: {part.file} is damaged: {error}") from error
    if (content.rows, content.bytes, content.hex) != (part.rows, part.bytes, part.digest):
        why = "it has other rows than its manifest says"
        if cipher is None:  # else no digest gets into statuses and logs
            why = (
                f"it has {content.rows} rows with the digest {content.hex}, its manifest says"
                f" {part.rows} with {part.digest}"
            )
        raise TargetRefused(f"{target.text}: {part.file} is damaged: {why}")


def part_columns(target: Target, part: PartTold, cipher: Cipher | None) -> "Iterator[RowColumns]":
    """Yield the rows of a partition as columns, unchecked: the caller has to prove them.

    Raises TargetUnreadable if the file cannot be read, TargetRefused if it is damaged, or has a row
    group that takes too much memory.
    """
    import numpy as np

    from quorate_spark.row_columns import RowColumns

    for batch in _batches(target, part, cipher, FOREIGN_GROUP_BYTES_MAX):
        if not batch.num_rows:
            continue
        _, keys, values, *numbers = batch.columns
        counters, terms, expiries = (each.to_numpy() for each in numbers)
        tombstones = np.zeros(len(keys), np.bool_)
        yield RowColumns(keys, counters, terms, expiries, tombstones, values)


def _columns(target: Target, part: PartTold, cipher: Cipher | None) -> Iterator[list[list[Any]]]:
    """Yield the columns of LiveRow, batch by batch."""
    for batch in _batches(target, part, cipher):
        yield [column.to_pylist() for column in batch.columns[1:]]


def _batches(
    target: Target, part: PartTold, cipher: Cipher | None, group_bytes_max: int | None = None
) -> Iterator[Any]:
    """Yield record batches with the columns of the schema, none of which has nulls.

    None has rows of two row groups, so that large values take no more memory than a group.
    `group_bytes_max`: refuse a file with a larger one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    decryption = None if cipher is None else cipher.properties_to_read(part.file)
    with target.reading(part.file) as file:
        try:
            if cipher is not None:
                check_magic(file)
            opened = pq.ParquetFile(
                file, decryption_properties=decryption, page_checksum_verification=True
            )
            for group in range(opened.num_row_groups):
                _check_size(opened, group, group_bytes_max)
                # The first column is read as well: damage in it is damage of the file.
                names = _schema().names
                for batch in opened.iter_batches(READ_ROWS, row_groups=[group], columns=names):
                    yield _checked(batch)
        except OSError:
            raise
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TargetRefused(
                f"{target.text}: {part.file} is damaged: {first_line(error)}"
            ) from error


def _check_size(file: Any, group: int, bytes_max: int | None) -> None:
    """Raise ValueError if a row group has more bytes than may be read."""
    size = file.metadata.row_group(group).total_byte_size
    if bytes_max is not None and size > bytes_max:
        raise ValueError(f"row group {group} has {size} bytes, too many for an export")


def _checked(batch: Any) -> Any:
    """Return a record batch that has the columns of an export.  Raises ValueError."""
    if not batch.schema.equals(_schema()) or any(each.null_count for each in batch.columns):
        raise ValueError("its columns are not those of an export")
    return batch


def _is_damaged(target: Target, part: PartTold, cipher: Cipher | None) -> bool:
    """Return whether a file whose rows could not be read has bytes that can be, and no rows again.

    Raises TargetUnreadable if its bytes cannot be read.
    """
    with target.reading(part.file) as file:
        while file.read(READ_BYTES):
            pass
    try:
        for _ in _columns(target, part, cipher):
            pass
    except TargetUnreadable:
        return True
    return False


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
            pa.field("counter", pa.int64(), nullable=False),
            pa.field("term", pa.int64(), nullable=False),
            pa.field("expires_at", pa.int64(), nullable=False),
        ]
    )
