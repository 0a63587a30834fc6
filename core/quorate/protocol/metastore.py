"""The durable store of ownership as the master uses it: compare-and-set, one object at a time.

There are three implementations (Kubernetes objects, SQLite, a dict for simulation) and one contract
test suite.  Keys are small tuples; values are structs of `quorate.facts`.  Revisions are opaque and
are compared for equality only.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from quorate.facts.errors import QuorateError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord

SHARD_PARTITIONS = 64
"""Rows per stored object: an object stays far below etcd's 1.5 MB, and the loss of a node costs few
writes."""

UNREADABLE = 1 << 62
"""The version or term of a stored row where it cannot be read."""


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
    """Return the partitions of one shard, in a zone that has `partitions` in all."""
    first = shard * SHARD_PARTITIONS
    return range(first, min(first + SHARD_PARTITIONS, partitions))


class DamagedRow(NamedTuple):
    """A stored row that is invalid.

    `version` and `term` are what the row says, or UNREADABLE; `why` is a sentence that names the
    object and says why the row is invalid.
    """

    partition: int
    version: int
    term: int
    why: str


class Stored(NamedTuple):
    """A value with the revision at which it was read or written.

    `damaged`: the object's invalid rows.  The metastore keeps them unchanged until a row of their
    partition is written, or until a person repairs or removes them.
    """

    value: Value
    revision: Revision
    damaged: tuple[DamagedRow, ...] = ()


class Seen(NamedTuple):
    """The revisions of objects that were read; None means that the object is gone.

    `all_of`: the kinds of keys for which the list is complete.
    """

    revisions: Mapping[Key, Revision | None]
    all_of: frozenset[str] = frozenset()


class Conflict(QuorateError):
    """The object's revision is not the expected one: nothing was written."""


class OutcomeUnknown(QuorateError):
    """The write may or may not have happened: read the object again before anything else."""


class WriteRefused(QuorateError):
    """Nothing was written, and the write stays refused until a right, quota or policy changes.

    `reason` is one word.  `retry_after_s` is set if the metastore is merely overloaded and said
    when to try again.
    """

    def __init__(self, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class MetastoreUnavailable(QuorateError):
    """The metastore cannot be read now; nothing was changed.  Try again later."""


class ReadRefused(MetastoreUnavailable):
    """The right to read the metastore is missing."""


class Metastore(Protocol):
    """Durable records under compare-and-set.  `load`, `read` and `acquire_master_term` may raise
    Unavailable."""

    async def acquire_master_term(self, above: int = 0) -> int:
        """Count up the mastership and return its number, which is higher than `above`.

        It is durable before this returns, and is never returned twice.
        """

    async def load(self) -> dict[Key, Stored]:
        """Return all objects as they are now."""

    async def read(self, key: Key) -> Stored | None:
        """Return one object as it is now; None if there is none."""

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        """Write the object (None: delete it) if its revision is `expected` (None: it must not
        exist).

        Returns the new revision, which is empty after a deletion.  Raises Conflict, WriteRefused or
        OutcomeUnknown.
        """
