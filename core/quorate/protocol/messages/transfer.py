"""Messages between a copy and its supplier: deltas, rows of keys, full copies.

They are part of `message.Message` and use the same links.
"""

import msgspec


class FetchUpdates(msgspec.Struct, frozen=True, array_like=True, tag=49):
    """Asks for the updates of these inclusive counter ranges; the reply is Updates."""

    zone: str
    partition: int
    term: int
    ranges: tuple[tuple[int, int], ...]


class Updates(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """The requested updates, encoded.

    `reaches_from`: the supplier's log has everything above this counter up to its LWM.  A requested
    counter at or below it can come only with a full copy.
    """

    zone: str
    partition: int
    term: int
    updates: tuple[bytes, ...]
    reaches_from: int


class FetchKeys(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Asks for the present rows of these keys, which divergent updates touched.

    `adopted`: reply only if the supplier has adopted the term.  An activation sets it to False,
    because it asks a voter that has only promised the term.
    """

    zone: str
    partition: int
    term: int
    keys: tuple[bytes, ...]
    adopted: bool = False


class KeyRows(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """The requested rows as (key, counter, term, expires_at, value); counter 0: there is no row.

    Rows of the last keys may be missing: the answer is limited in size.  `lwm` is the LWM of the
    supplier's rows.
    """

    zone: str
    partition: int
    term: int
    lwm: int
    rows: tuple[tuple[bytes, int, int, int, bytes | None], ...]


class FetchSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """Asks for rows with key > after (None: from the start)."""

    zone: str
    partition: int
    term: int
    after: bytes | None
    bytes_max: int


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Rows with after < key <= next.  `next` None: this is the last piece.

    `lwm` is the LWM of the supplier's rows when they were read.  `flushed` is not used: always 0.
    """

    zone: str
    partition: int
    term: int
    after: bytes | None
    next: bytes | None
    lwm: int
    flushed: int
    rows: tuple[tuple[bytes, int, int, int, bytes | None], ...]
    bytes_total: int


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """Says that the copy cannot supply in that term; ask another copy."""

    zone: str
    partition: int
    term: int


def is_bulk(message: object) -> bool:
    """Return whether ordinary messages may overtake the message."""
    return isinstance(message, SnapshotChunk)


TransferMessage = (
    FetchUpdates | Updates | FetchKeys | KeyRows | FetchSnapshot | SnapshotChunk | Unavailable
)
