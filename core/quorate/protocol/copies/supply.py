"""Supplies another copy: updates from the log, rows, snapshots.

Only a copy that has adopted the term supplies rows.  During an activation, so does one that has
promised the term and whose lineage the primary chose: its rows do not change any more.  Updates are
exact by (term, counter), so any copy that promised the term may supply them from its log.
"""

from collections.abc import Sequence

from quorate.protocol.copies.copy import Copy
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Unavailable,
    Updates,
)

TOO_MUCH = -1
"""`Updates.reaches_from` if the missing updates are larger than the partition."""

SMALL_BYTES = 1024 * 1024
"""Deltas smaller than this are never refused for their size."""

KEY_ROWS_BYTES = 1024 * 1024
"""Size of one KeyRows, and of the keys in one FetchKeys; one row or key may be larger."""

KEYS_PER_ASK = 10_000


def supply_updates(
    zone: str, copy: Copy, ask: FetchUpdates, bytes_max: int
) -> Updates | Unavailable:
    """Return log entries of the requested ranges, as many as fit into `bytes_max`."""
    if copy.promise_term != ask.term:
        return Unavailable(zone, ask.partition, ask.term)
    if copy.adopted:
        sizes = [copy.storage.log_bytes(ask.partition, *each) for each in ask.ranges]
        if sum(sizes) > max(copy.space.byte_count(), SMALL_BYTES):
            return Updates(zone, ask.partition, ask.term, (), TOO_MUCH)
    updates: list[bytes] = []
    room = bytes_max
    for first, last in ask.ranges:
        if room <= 0:
            break
        for _, _, raw in copy.storage.log_read(ask.partition, first, last, room):
            updates.append(raw)
            room -= len(raw)
    return Updates(zone, ask.partition, ask.term, tuple(updates), copy.log_from)


def supply_keys(zone: str, copy: Copy, ask: FetchKeys) -> KeyRows | Unavailable:
    """Return the present rows of the first requested keys, as many as fit into KEY_ROWS_BYTES.

    The copy that asks then asks for the others.
    """
    if copy.promise_term != ask.term or (ask.adopted and not copy.adopted):
        return Unavailable(zone, ask.partition, ask.term)
    rows: list[tuple[bytes, int, int, int, bytes | None]] = []
    room = KEY_ROWS_BYTES
    for key in ask.keys:
        if room <= 0:
            break
        row = copy.get(key)
        if row is None:
            rows.append((key, 0, 0, 0, None))
            room -= len(key)
        else:
            rows.append((key, row.counter, row.term, row.expires_at, row.value))
            room -= len(key) + len(row.value or b"")
    return KeyRows(zone, ask.partition, ask.term, copy.lwm, tuple(rows))


def keys_to_ask(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the first of `keys`, at least one: as many as one FetchKeys asks for."""
    room = KEY_ROWS_BYTES
    for count, key in enumerate(keys[:KEYS_PER_ASK]):
        if room <= 0:
            return tuple(keys[:count])
        room -= len(key)
    return tuple(keys[:KEYS_PER_ASK])


def supply_snapshot(
    zone: str, copy: Copy, ask: FetchSnapshot, rows_max: int = 20_000
) -> SnapshotChunk | Unavailable:
    """Return the next piece of the copy's rows."""
    if copy.promise_term != ask.term or not copy.adopted:
        return Unavailable(zone, ask.partition, ask.term)
    chunk = copy.space.scan(ask.after, rows_max, ask.bytes_max)
    return SnapshotChunk(
        zone,
        ask.partition,
        ask.term,
        ask.after,
        chunk[-1][0] if chunk else None,
        copy.lwm,
        0,
        tuple([(key, r.counter, r.term, r.expires_at, r.value) for key, r in chunk]),
        copy.space.byte_count(),
    )
