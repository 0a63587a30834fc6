"""What agents say to each other of copies: leases, the promises of voters, updates and their acks.

`zone` is the zone's uid; `term`, `version`, counters as in docs/protocol.md; `*_ms` milliseconds.
"""

import msgspec

from quorate.facts.lineage import Lineage
from quorate.facts.topology import Holder
from quorate.protocol.storage import Operation


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One update of a partition: resulting rows or tombstones, never deltas."""

    counter: int
    term: int
    operations: tuple[Operation, ...]


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Asks the other agent for a lease on everything it promised to the sender's incarnation.

    `sent_ms` is the sender's boot clock; `seen` the exception sequence it has taken in.
    """

    sent_ms: int
    seen: int


class HeartbeatAck(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Grants the lease, counted by the holder from `sent_ms`, except where listed.

    `exceptions` are (zone, partition, promised term): promises that have moved to another holder.
    They are repeated until a Heartbeat carries `sequence` as seen.
    """

    sent_ms: int
    lease_ms: int
    sequence: int
    exceptions: tuple[tuple[str, int, int], ...]


class Fence(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """From a new primary to every voter: promise `term` to `holder`, report what you hold."""

    zone: str
    partition: int
    term: int
    holder: Holder


class FenceAck(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """The promise is durable.  Held: every counter <= lwm (in the lineage's terms) and `above`,
    (term, ranges).  `lease_ms`: how long a lease granted to an earlier holder may still run."""

    zone: str
    partition: int
    term: int
    store: str
    lineage: Lineage
    lwm: int
    above: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    lease_ms: int
    adopted: bool


class FenceRefused(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """A higher (or equal, another holder's) term was promised, or the store is not ready."""

    zone: str
    partition: int
    term: int
    promised: int


class Sync(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """From an active primary: adopt this lineage, whose last entry is the term's."""

    zone: str
    partition: int
    term: int
    lineage: Lineage
    hwm: int


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """New updates of one partition in one term.  `hwm`: the highest counter sent so far;
    `majority`: held by a majority (logs may be cut there); `settled`: held by all copies."""

    partition: int
    term: int
    hwm: int
    majority: int
    settled: int
    updates: tuple[bytes, ...]


class Append(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """From primaries of one agent, one turn's updates; each update is an encoded Update."""

    zone: str
    batches: tuple[Batch, ...]


class Acks(msgspec.Struct, frozen=True, array_like=True, tag=47):
    """(partition, term, lwm): durably held by a copy that has adopted the term."""

    zone: str
    entries: tuple[tuple[int, int, int], ...]


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """An Append or Sync of a term that is not the promised one; `promised` is, 0 for none."""

    zone: str
    partition: int
    term: int
    promised: int


ReplicationMessage = (
    Heartbeat | HeartbeatAck | Fence | FenceAck | FenceRefused | Sync | Append | Acks | Rejected
)
