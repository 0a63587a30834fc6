"""Answers tools' questions about an agent's copies, for validation and debugging."""

import sys
from array import array
from collections.abc import Callable, Iterable

from quorate.facts.keyspace import key_partition
from quorate.facts.time import Now
from quorate.protocol.agent.repairs.restore_rows import restore_rows
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.reports import tell_digest, tell_state
from quorate.protocol.copies.totals import DIGEST_BYTES, buckets_of, key_bucket
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import (
    DIGESTS_ASKED_MAX,
    AskAside,
    AskBuckets,
    AskColumns,
    AskCopies,
    AskDigests,
    AskRows,
    AskUpdates,
    AskValues,
    Buckets,
    Copies,
    CopyColumns,
    CopyDigest,
    CopyRows,
    Damage,
    Damaged,
    Digests,
    HandedOver,
    HandOver,
    KeyRepaired,
    Refill,
    Refilling,
    RepairKey,
    RestoreRows,
    RowsRestored,
    UpdatesTold,
)
from quorate.protocol.storage import Row
from quorate_agent.process.paced.pace import Portion
from quorate_agent.process.values_told import is_readable, tell_set_aside, tell_values
from quorate_agent.resp.replies import VALUE_BYTES_MAX

TimesTold = tuple[tuple[tuple[int, int], ...], ...]
"""Times of commands as in Copies."""

ROWS_MAX = 20_000
CHUNK_BYTES_MAX = 8 * 1024 * 1024
UPDATES_BYTES_MAX = 2 * 1024 * 1024
"""Updates of a log in one answer."""
COUNTED_ROWS_MAX = 50_000
"""Rows counted for one question about digests: some 50 ms."""


def answer_tool(
    message: Message,
    node: str,
    zones: Iterable[Replicas],
    debug_commands: bool,
    now: Now,
    portion: Portion | None = None,
    client_times: Callable[[str], TimesTold] = lambda uid: (),
) -> Message | None:
    """Return the answer to a tool's question; None if the message is not one.

    - `portion`: how much a paced reading may read now; it notes how much was read.
    - `client_times`: returns the times of the commands of the zone with this uid, as in Copies.
    """
    portion = portion or Portion(CHUNK_BYTES_MAX, is_counted=False)
    name = getattr(message, "zone_name", None)
    zone = next((zone for zone in zones if zone.record.name == name), None)
    problem = "" if zone is not None else f"zone {name}: not on agent {node}"
    match message:
        case AskCopies():
            copies = (
                tuple(
                    tell_state(zone.copies[partition], node)
                    for partition in sorted(zone.copies)
                    if zone.copies[partition].present and message.partition in (None, partition)
                )
                if zone is not None
                else ()
            )
            partitions = zone.record.partitions if zone is not None else 0
            uid = zone.record.uid if zone is not None else ""
            times = client_times(uid) if zone is not None else ()
            return Copies(message.zone_name, node, copies, problem, partitions, uid, times)
        case AskRows():
            return _rows(message, node, zone, problem, portion)
        case AskColumns():
            return _columns(message, node, zone, problem, portion)
        case AskDigests():
            return _digests(message, node, zone, problem)
        case AskBuckets():
            return _buckets(message, node, zone, problem, portion)
        case AskAside():
            return tell_set_aside(message, node, zone, problem)
        case AskValues():
            return tell_values(message, node, zone, problem)
        case Refill():
            if zone is None:
                return Refilling(message.zone_name, message.partition, problem=problem)
            return zone.refills.ask(message)
        case RepairKey():
            if zone is None or (problem := _another(zone, node, message.uid)):
                return KeyRepaired(problem=problem)
            if message.value is not None and not is_readable(message.value):
                return KeyRepaired(problem="the value is none that clients can read")
            return zone.repairs.repair(message, now)
        case HandOver():
            return (
                HandedOver(problem=problem)
                if zone is None
                else zone.repairs.hand_over(message, now)
            )
        case RestoreRows():
            if zone is None or (problem := _another(zone, node, message.uid)):
                return RowsRestored(problem=problem)
            for key, value, _ in message.rows:
                if len(value) > VALUE_BYTES_MAX:
                    why = f"the value of {key!r} has {len(value)} bytes, above {VALUE_BYTES_MAX}"
                    return RowsRestored(problem=why)
                if not is_readable(value):
                    why = f"the value of {key!r} is none that clients can read"
                    return RowsRestored(problem=why)
            return restore_rows(zone, message, now)
        case AskUpdates():
            return _updates(message, node, zone, problem, portion)
        case Damage():
            if not debug_commands:
                problem = (
                    f"agent {node}: started without --debug-commands: `quorate dev up"
                    f" --debug-commands`, then `quorate dev restart {node}`"
                )
            elif zone is not None:
                problem = _damage(message, node, zone)
            return Damaged(problem)
        case _:
            return None


def _another(zone: Replicas, node: str, uid: str) -> str:
    """Return why the zone of the wanted name is not the wanted one; empty: it is, or any is."""
    if uid in ("", zone.record.uid):
        return ""
    return (
        f"zone {zone.record.name} on agent {node} is another one, {zone.record.uid}, not {uid}: the"
        " zone was deleted and created again since"
    )


def _rows(
    ask: AskRows, node: str, zone: Replicas | None, problem: str, portion: Portion
) -> CopyRows:
    copy = _copy(zone, ask.partition)
    if copy is None:
        missing = problem or _no_copy(ask.partition, node)
        return CopyRows(ask.zone_name, ask.partition, None, 0, (), missing)
    chunk = copy.space.scan(ask.after, ROWS_MAX, _bytes_max(ask, portion))
    portion.note(chunk)
    wanted = set(ask.buckets)
    rows = [pair for pair in chunk if not wanted or key_bucket(pair[0]) in wanted]
    return CopyRows(
        ask.zone_name,
        ask.partition,
        chunk[-1][0] if chunk else None,
        copy.lwm,
        tuple([(key, r.counter, r.term, r.expires_at, r.value) for key, r in rows]),
    )


def _columns(
    ask: AskColumns, node: str, zone: Replicas | None, problem: str, portion: Portion
) -> CopyColumns:
    copy = _copy(zone, ask.partition)
    if copy is None:
        missing = problem or _no_copy(ask.partition, node)
        return CopyColumns(
            ask.zone_name, ask.partition, None, 0, 0, b"", b"", b"", b"", b"", missing
        )
    keys, heads, values, whole = copy.space.scan_packed(
        ask.first, ask.before, ROWS_MAX, _bytes_max(ask, portion), values=ask.values
    )
    return CopyColumns(
        ask.zone_name,
        ask.partition,
        None if whole else keys[-1] + b"\0",
        copy.lwm,
        len(keys),
        b"".join(keys),
        _sizes(keys),
        heads,
        b"".join(values),
        _sizes(values),
    )


def _bytes_max(ask: AskRows | AskColumns, portion: Portion) -> int:
    """Return how much is told at once: one row at least, whatever is asked for."""
    return max(1, min(ask.bytes_max, CHUNK_BYTES_MAX, portion.bytes_max))


def _sizes(data: list[bytes]) -> bytes:
    sizes = array("I", map(len, data))
    if sys.byteorder == "big":
        sizes.byteswap()
    return sizes.tobytes()


def _updates(
    ask: AskUpdates, node: str, zone: Replicas | None, problem: str, portion: Portion
) -> UpdatesTold:
    copy = _copy(zone, ask.partition)
    if copy is None:
        missing = problem or _no_copy(ask.partition, node)
        return UpdatesTold(ask.zone_name, ask.partition, None, 0, 0, (), missing)
    last = min(ask.upto, copy.lwm)
    bytes_max = min(UPDATES_BYTES_MAX, portion.bytes_max)
    found = copy.storage.log_read(ask.partition, ask.after + 1, last, bytes_max)
    portion.note_updates(found)
    is_divergent = copy.lineage.is_divergent
    return UpdatesTold(
        ask.zone_name,
        ask.partition,
        found[-1][0] if found and found[-1][0] < last else None,
        copy.lwm,
        copy.log_from,
        tuple([raw for counter, term, raw in found if not is_divergent(term, counter)]),
    )


def _copy(zone: Replicas | None, partition: int) -> Copy | None:
    copy = zone.copies.get(partition) if zone is not None else None
    return copy if copy is not None and copy.present else None


def _no_copy(partition: int, node: str) -> str:
    return f"partition {partition}: no copy on agent {node}"


def _digests(ask: AskDigests, node: str, zone: Replicas | None, problem: str) -> Digests:
    marks = dict(zip(ask.partitions, ask.marks, strict=False))
    told: list[CopyDigest] = []
    room = COUNTED_ROWS_MAX
    for partition in ask.partitions[:DIGESTS_ASKED_MAX]:
        copy = _copy(zone, partition)
        if zone is None or copy is None:
            continue
        room -= zone.upkeep.count_digest(copy, room)
        if room <= 0:
            break  # the next question goes on counting
        told.append(tell_digest(copy, marks.get(partition, 0)))
    return Digests(ask.zone_name, node, tuple(told), problem)


def _buckets(
    ask: AskBuckets, node: str, zone: Replicas | None, problem: str, portion: Portion
) -> Buckets:
    copy = _copy(zone, ask.partition)
    if copy is None:
        missing = problem or _no_copy(ask.partition, node)
        return Buckets(ask.zone_name, ask.partition, None, 0, (), missing)
    chunk = copy.space.scan(ask.after, ROWS_MAX, min(CHUNK_BYTES_MAX, portion.bytes_max))
    portion.note(chunk)
    shares = buckets_of(chunk, ask.upto)
    return Buckets(
        ask.zone_name,
        ask.partition,
        chunk[-1][0] if chunk else None,
        copy.lwm,
        tuple(
            (bucket, rows, digest.to_bytes(DIGEST_BYTES))
            for bucket, (rows, digest) in sorted(shares.items())
        ),
    )


def _damage(message: Damage, node: str, zone: Replicas) -> str:
    partition = key_partition(message.key, zone.record.partitions)
    copy = zone.copies.get(partition)
    row = copy.get(message.key) if copy is not None else None
    if copy is None or row is None:
        return f"key {message.key!r}: no row in partition {partition} on agent {node}"
    copy.space.put(message.key, Row(row.counter, row.term, row.expires_at, message.value))
    zone.touch(copy)
    return ""
