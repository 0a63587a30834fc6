"""What the master needs of the durable store of ownership: compare-and-set, one object at a time.

One interface, three implementations (Kubernetes objects, SQLite, a dict for simulation) and one
contract test suite.  Keys are small tuples; values are the structs of `quorate.facts`; a revision
is opaque and compared for equality only.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from quorate.facts.errors import QuorateError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord

SHARD_PARTITIONS = 64
"""Rows per stored object: an object stays far below etcd's 1.5 MB, a loss costs few writes."""


class ZoneKey(NamedTuple):
    """The record of one zone (value: ZoneRecord)."""

    uid: str
    kind: Literal["zone"] = "zone"


class NodeKey(NamedTuple):
    """The registration of one agent (value: NodeRecord)."""

    name: str
    kind: Literal["node"] = "node"


class ShardKey(NamedTuple):
    """Rows shard * 64 .. shard * 64 + 63 of a zone (value: tuple of PartitionRow)."""

    uid: str
    shard: int
    kind: Literal["shard"] = "shard"


Key = ZoneKey | NodeKey | ShardKey
Value = ZoneRecord | NodeRecord | tuple[PartitionRow, ...]
Revision = str


def partitions_of(shard: int, partitions: int) -> range:
    """The partitions whose rows are in one shard of a zone with so many."""
    first = shard * SHARD_PARTITIONS
    return range(first, min(first + SHARD_PARTITIONS, partitions))


class DamagedRow(NamedTuple):
    """A stored row that is invalid: of which partition, what it says of version and term, and why
    it is invalid, as a sentence that names the object."""

    partition: int
    version: int
    term: int
    why: str


class Stored(NamedTuple):
    """A value with the revision it was read or written at.

    `damaged`: the object's invalid rows; the metastore keeps them as they are until a row of their
    partition is written, or somebody repairs or removes them."""

    value: Value
    revision: Revision
    damaged: tuple[DamagedRow, ...] = ()


class Seen(NamedTuple):
    """Objects and their revisions, as they were seen; None: one that is gone.  `all_of`: kinds of
    keys of which there are no others."""

    revisions: Mapping[Key, Revision | None]
    all_of: frozenset[str] = frozenset()


class Conflict(QuorateError):
    """The object's revision is not the expected one: nothing was written."""


class OutcomeUnknown(QuorateError):
    """The write may or may not have happened: read again before anything else."""


class WriteRefused(QuorateError):
    """Nothing was written, and the same write is refused until something besides it changes: a
    right, a quota, a policy.  `reason` is one word for it.  `retry_after_s`: the metastore has only
    too much to do, and said when to ask again."""

    def __init__(self, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class Unavailable(QuorateError):
    """The metastore cannot be read now: ask again later.  Nothing was changed."""


class ReadRefused(Unavailable):
    """It may not be read, until a right is given back."""


class Metastore(Protocol):
    """Durable records under compare-and-set.  Reading and counting may raise Unavailable."""

    async def acquire_master_term(self, above: int = 0) -> int:
        """Count one more holder of the mastership, with a number higher than `above`; durable
        before it returns; never repeats."""

    async def load(self) -> dict[Key, Stored]:
        """Everything, as of now."""

    async def read(self, key: Key) -> Stored | None:
        """One object, as of now; None when there is none."""

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        """Write (None: delete) if the object is at `expected` (None: does not exist yet).

        Raises Conflict, WriteRefused or OutcomeUnknown.  Deleting answers the empty revision.
        """
