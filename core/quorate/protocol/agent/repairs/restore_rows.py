"""Writes rows at a tool's request: those of an export, or those of a Spark job.

The primary writes the rows as one ordinary update, so every copy gets them, and a client may
overwrite them at any time.

Rows of an export are written where their keys have no row.  A key that has a row is left alone: no
client's value is replaced.  A repeated request therefore writes nothing, and says whether a quorum
has the rows.  A row whose time is over by the primary's clock is left out: it could not be told
from one that is missing, and each repetition would write it again.

A Spark job's rows replace others (`replaces`).  A row that is there already is not written again.
The answer names the update, and a repeated request names it, too: in the same term it writes
nothing, so that a client's newer row stays.  A primary of another term cannot tell whether it has
that update; it writes the rows again where others are.

Without `replaces` a key without a row gets one, also if a client has deleted it since an earlier
request: the primary does not remember which rows it restored.  So clients must not write to the
zone before the import is done.
Source: docs/protocol.md, section 5.
"""

from msgspec import structs

from quorate.facts.keyspace import is_reserved, key_partition
from quorate.facts.time import Now
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.waiters import Clientless
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.tools import RestoreRows, RowsRestored
from quorate.protocol.storage import Operation, Row


def restore_rows(zone: ZoneCopies, ask: RestoreRows, now: Now) -> RowsRestored:
    """Write the rows that are to be, or say what that waits for, or why it is not done."""
    partitions = zone.record.partitions
    for key, _, _ in ask.rows:
        if is_reserved(key) or key_partition(key, partitions) != ask.partition:
            return RowsRestored(problem=f"{key!r} is no client's key of partition {ask.partition}")
    role = zone.roles.get(ask.partition)
    if role is None or not role.serves(now.boot_ms):
        return RowsRestored(waits_for=f"agent {zone.me.node} to serve as its primary")
    if ask.replaces and ask.written[1] == role.term:
        return _progress(role, ask.written[0], ())
    missing: list[Operation] = []
    kept: list[bytes] = []
    counter = 0
    for key, value, expires_at in ask.rows:
        if not ask.replaces and _is_over(expires_at, now):
            continue
        if key in role.locks:
            return RowsRestored(waits_for="a transaction that has locked a key")
        row = role.copy.get(key)
        if row is None or _is_gone(row, now):
            missing.append((key, value, expires_at))
        elif (row.value, row.expires_at) == (value, expires_at):
            counter = max(counter, row.counter)
        elif ask.replaces:
            missing.append((key, value, expires_at))
        else:
            kept.append(key)
    if missing:
        if zone.why_full:
            return RowsRestored(problem=f"no room on agent {zone.me.node}: {zone.why_full}")
        counter = role.write(tuple(missing))
        role.wait(Clientless(tuple([key for key, _, _ in missing])))
        zone.commands_wrote(role)
    done = _progress(role, counter, tuple(kept))
    return structs.replace(done, written=(counter, role.term)) if ask.replaces else done


def _progress(role: Primary, counter: int, kept: tuple[bytes, ...]) -> RowsRestored:
    if role.acked < counter:
        return RowsRestored(kept=kept, waits_for="a quorum of the copies")
    return RowsRestored(done=True, kept=kept)


def _is_gone(row: Row, now: Now) -> bool:
    return row.value is None or _is_over(row.expires_at, now)


def _is_over(expires_at: int, now: Now) -> bool:
    return 0 < expires_at <= now.wall_ms
