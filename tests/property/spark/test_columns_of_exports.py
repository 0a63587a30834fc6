"""An export makes of columns the same digest and the same rows as row by row."""

from collections.abc import Iterator
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from quorate.facts.keyspace import RESERVED
from quorate.protocol.copies.totals import rows_digest
from quorate.protocol.messages.replication import Update
from quorate_spark.exports import cut
from quorate_spark.exports.cut import Changes, DigestWatched
from quorate_spark.exports.row_digests import columns_digest
from quorate_spark.reading.read_copies import StoredRow
from quorate_spark.row_columns import RowColumns

KEYS = [b"", b"\0", RESERVED + b"x", b"a", b"a\0", b"b", b"c", b"\xff"]
MASK = (1 << 128) - 1

values = st.sampled_from([None, b"", b"v", b"w" * 300])
rows = st.dictionaries(
    st.sampled_from(KEYS),
    st.tuples(st.integers(1, 9), st.just(3), st.sampled_from([0, 99]), values),
).map(lambda found: [(key, *found[key]) for key in sorted(found)])
operations = st.tuples(st.sampled_from([*KEYS, None]), values, st.just(0))


def chunks(found: list[StoredRow], size: int) -> Iterator[RowColumns]:
    for at in range(0, len(found), size):
        yield RowColumns.of_rows(found[at : at + size], values=True)


@given(rows, st.integers(0, 3))
def test_the_digest_of_columns_is_that_of_their_rows(found: list[StoredRow], start: int) -> None:
    live = [row for row in found if row[4] is not None]
    columns = RowColumns.of_rows(found, values=True)
    columns = columns.where(~columns.tombstones)

    assert columns_digest(columns) == rows_digest(live)
    assert columns_digest(columns.cut(start, len(live))) == rows_digest(live[start:])
    assert columns_digest(columns, columns.counters * 0) == rows_digest(
        [(key, 0, term, expires_at, value) for key, _, term, expires_at, value in live]
    )


@given(
    rows, st.integers(1, 4), st.lists(operations, max_size=6), st.sampled_from([1, 500, 1 << 20])
)
def test_updates_are_applied_as_a_copy_applies_them(
    found: list[StoredRow],
    size: int,
    written: list[tuple[bytes | None, bytes | None, int]],
    limit: int,
) -> None:
    changes, expected = Changes(), {row[0]: row for row in found}
    for counter, (key, value, expires_at) in enumerate(written, start=10):
        if key is None:
            changes.add(Update(counter, 3, ((None, None, 0),)))
            expected = {key: row for key, row in expected.items() if key.startswith(RESERVED)}
        else:
            changes.add(Update(counter, 3, ((key, value, expires_at),)))
            expected[key] = (key, counter, 3, expires_at, value)

    with patch.object(cut, "CHUNK_BYTES", limit):
        watched = DigestWatched(changes.applied_to(chunks(found, size)))
        told = [row for chunk in watched for row in chunk.rows()]

    live = [expected[key] for key in sorted(expected) if expected[key][4] is not None]
    assert told == [row for row in live if not row[0].startswith(RESERVED)]
    assert watched.digest == rows_digest(live) & MASK
