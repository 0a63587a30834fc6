"""Rows on their way to the primaries of a zone: batches of one partition, within bounds of memory.

Rows are gathered until a batch is full.  It is then written as one update, and waits for a quorum
while the next ones are written.
"""

from collections import deque
from collections.abc import Callable

from msgspec import structs

from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.tools import RestoreRows, RowsRestored
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.writing.primaries import Primaries

BATCH_ROWS_MAX = 1000
BATCH_BYTES_MAX = 512 * 1024
"""Rows of one update; one row may be larger."""
BATCHES_AT_ONCE = 8
BYTES_AT_ONCE = 4 * 1024 * 1024
"""Batches that wait for a quorum while the next ones are written, at least one; and their rows."""
GATHERED_BYTES_MAX = 16 * 1024 * 1024
"""Rows of batches that are not full, over all partitions; one row may be larger."""
ROW_COST = 200
"""Memory of a row beside its key and value."""


class _Batch:
    """Rows of one partition; of a key that comes twice the last row is kept."""

    def __init__(self) -> None:
        self._rows: dict[bytes, tuple[bytes, int]] = {}
        self.bytes = 0

    @property
    def cost(self) -> int:
        return self.bytes + ROW_COST * len(self._rows)

    @property
    def rows(self) -> tuple[tuple[bytes, bytes, int], ...]:
        return tuple([(key, *row) for key, row in self._rows.items()])

    def shares_a_key_with(self, ask: RestoreRows) -> bool:
        return any(key in self._rows for key, _, _ in ask.rows)

    def has_no_room_for(self, size: int) -> bool:
        is_full = len(self._rows) >= BATCH_ROWS_MAX or self.bytes + size > BATCH_BYTES_MAX
        return bool(self._rows) and is_full

    def add(self, key: bytes, value: bytes, expires_at: int) -> None:
        before = self._rows.get(key)
        if before is not None:
            self.bytes -= len(key) + len(before[0])
        self._rows[key] = (value, expires_at)
        self.bytes += len(key) + len(value)


class RowBatches:
    """Takes rows, one after the other; a quorum has all of them after `finish`.

    - `replaces`: rows replace those that their keys have, also earlier ones of this object.  Else
      the rows of the keys stay, and `take_kept` is called with their keys
    """

    def __init__(
        self,
        primaries: Primaries,
        zone: str,
        partitions: int,
        *,
        replaces: bool,
        take_kept: Callable[[tuple[bytes, ...]], None] = lambda keys: None,
    ) -> None:
        self._primaries = primaries
        self._zone = zone
        self._partitions = partitions
        self._replaces = replaces
        self._take_kept = take_kept
        self._gathered: dict[int, _Batch] = {}
        self._gathered_cost = 0
        self._begun: deque[tuple[RestoreRows, int]] = deque()
        self._begun_bytes = 0

    def add(self, key: bytes, value: bytes, expires_at: int) -> None:
        """Take a row; write what there is no room for.  Raises Unreadable."""
        partition = key_partition(key, self._partitions)
        batch = self._gathered.get(partition)
        if batch is not None and batch.has_no_room_for(len(key) + len(value)):
            self._send(partition)
            batch = None
        if batch is None:
            batch = self._gathered[partition] = _Batch()
        before = batch.cost
        batch.add(key, value, expires_at)
        self._gathered_cost += batch.cost - before
        while self._gathered_cost > GATHERED_BYTES_MAX:
            self._send(max(self._gathered, key=lambda number: self._gathered[number].cost))

    def send(self) -> None:
        """Write all that was gathered.  Raises Unreadable."""
        for partition in sorted(self._gathered):
            self._send(partition)

    def finish(self) -> None:
        """Write all that was gathered, and wait until a quorum has all.  Raises Unreadable."""
        self.send()
        while self._begun:
            self._finish_first()

    def _send(self, partition: int) -> None:
        batch = self._gathered.pop(partition)
        self._gathered_cost -= batch.cost
        while self._begun and (
            len(self._begun) >= BATCHES_AT_ONCE
            or self._begun_bytes + batch.bytes > BYTES_AT_ONCE
            or self._may_be_overtaken(batch)
        ):
            self._finish_first()
        ask = RestoreRows(self._zone, partition, batch.rows, self._replaces)
        told = self._primaries.begin(ask)
        if told is not None and told.done:
            self._take(partition, told)
        else:
            if told is not None:
                ask = structs.replace(ask, written=told.written)
            self._begun.append((ask, batch.bytes))
            self._begun_bytes += batch.bytes

    def _may_be_overtaken(self, batch: _Batch) -> bool:
        """Return whether an earlier row of a key may be written again after that of the batch."""
        return self._replaces and any(batch.shares_a_key_with(ask) for ask, _ in self._begun)

    def _finish_first(self) -> None:
        ask, size = self._begun.popleft()
        self._begun_bytes -= size
        self._take(ask.partition, self._primaries.restore(ask))

    def _take(self, partition: int, done: RowsRestored) -> None:
        if not done.kept:
            return
        if self._replaces:
            raise Unreadable(
                f"partition {partition}: its primary is of an earlier version, which replaces no"
                " rows: upgrade the agents, then write again"
            )
        self._take_kept(done.kept)
