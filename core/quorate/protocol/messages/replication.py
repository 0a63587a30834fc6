"""Messages among agents about copies: leases, promises, updates and their acknowledgements.

`zone` is the zone's uid; `term`, `version` and counters are as in docs/protocol.md; `*_ms` are
milliseconds.
"""

import msgspec

from quorate.facts.lineage import Lineage
from quorate.facts.topology import Holder
from quorate.protocol.storage import Operation


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One update of a partition: the resulting rows or tombstones, never differences."""

    counter: int
    term: int
    operations: tuple[Operation, ...]


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Asks the receiver for a lease on everything that it promised to the sender's incarnation.

    `sent_ms` is the sender's boot clock; `seen` is the last exception sequence that it has
    processed.
    """

    sent_ms: int
    seen: int


class HeartbeatAck(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Grants the lease, which the holder counts from `sent_ms`, for all promises but `exceptions`.

    `exceptions` are (zone, partition, promised term): promises that have moved to another holder.
    They are repeated until a Heartbeat reports `sequence` as seen.
    """

    sent_ms: int
    lease_ms: int
    sequence: int
    exceptions: tuple[tuple[str, int, int], ...]


class Fence(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """A new primary asks every voter to promise `term` to `holder` and to report what it holds."""

    zone: str
    partition: int
    term: int
    holder: Holder


class FenceAck(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """Says that the promise is durable, and reports what the copy holds.

    Held are all counters <= lwm, in the lineage's terms, and `above` as (term, ranges).
    `lease_ms`: how long a lease that was granted to an earlier holder may still run.
    `is_alive`: the present process has adopted a term of the partition.
    """

    zone: str
    partition: int
    term: int
    store: str
    lineage: Lineage
    lwm: int
    above: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    lease_ms: int
    adopted: bool
    is_alive: bool = False


class FenceRefused(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """A higher term was promised, or this term to another holder, or the store is not ready."""

    zone: str
    partition: int
    term: int
    promised: int


class Sync(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """An active primary asks the receiver to adopt this lineage; its last entry is that of
    `term`.

    `reset`: the term of the partition's last reset in the primary's row; 0: there was none.
    """

    zone: str
    partition: int
    term: int
    lineage: Lineage
    hwm: int
    reset: int = 0


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """New updates of one partition in one term.

    `hwm` is the highest counter sent so far.  A majority holds everything up to `majority`, so logs
    may be cut there.  All copies hold everything up to `settled`.
    """

    partition: int
    term: int
    hwm: int
    majority: int
    settled: int
    updates: tuple[bytes, ...]


class Append(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """The updates of one turn, from all primaries of one agent.  Each update is an encoded
    Update."""

    zone: str
    batches: tuple[Batch, ...]


class Acks(msgspec.Struct, frozen=True, array_like=True, tag=47):
    """(partition, term, lwm): what a copy that has adopted the term holds durably."""

    zone: str
    entries: tuple[tuple[int, int, int], ...]


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """Refuses an Append or Sync whose term is not the promised one.

    `promised` is the promised term, or 0 if there is none.
    """

    zone: str
    partition: int
    term: int
    promised: int


ReplicationMessage = (
    Heartbeat | HeartbeatAck | Fence | FenceAck | FenceRefused | Sync | Append | Acks | Rejected
)
