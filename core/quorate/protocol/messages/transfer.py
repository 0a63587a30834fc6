"""What a copy asks another one for, and how that answers: deltas, rows of keys, full copies.

They are part of `message.Message` and travel on the same links.
"""

import msgspec


class FetchUpdates(msgspec.Struct, frozen=True, array_like=True, tag=49):
    """Send the updates of these inclusive counter ranges (answered by Updates)."""

    zone: str
    partition: int
    term: int
    ranges: tuple[tuple[int, int], ...]


class Updates(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """Encoded updates asked for.  `reaches_from`: this log has everything above it up to its LWM;
    a counter asked for that is at or below it can only come with a full copy."""

    zone: str
    partition: int
    term: int
    updates: tuple[bytes, ...]
    reaches_from: int


class FetchKeys(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Send the present rows of these keys (they were touched by divergent updates); with `adopted`
    only if you have adopted the term (an activation asks a voter that has only promised it)."""

    zone: str
    partition: int
    term: int
    keys: tuple[bytes, ...]
    adopted: bool = False


class KeyRows(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """Rows asked for as (key, counter, term, expires_at, value); counter 0: there is none.

    `lwm` is the counter the supplier's rows stand at."""

    zone: str
    partition: int
    term: int
    lwm: int
    rows: tuple[tuple[bytes, int, int, int, bytes | None], ...]


class FetchSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """Send rows with key > after (None: from the start)."""

    zone: str
    partition: int
    term: int
    after: bytes | None
    bytes_max: int


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Rows of (after, next]; `lwm` is where the supplier's rows stood when they were read,
    `flushed` its last whole-partition delete.  `next` None: that was the last chunk."""

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
    """The copy asked cannot supply (not adopted in that term): ask another."""

    zone: str
    partition: int
    term: int


def is_bulk(message: object) -> bool:
    """Whether a message may be overtaken by ordinary ones."""
    return isinstance(message, SnapshotChunk)


TransferMessage = (
    FetchUpdates | Updates | FetchKeys | KeyRows | FetchSnapshot | SnapshotChunk | Unavailable
)
