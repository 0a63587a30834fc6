"""A scripted zone whose copies keep their updates, and whose primaries restore rows."""

import threading
from collections.abc import Callable
from functools import partial
from types import EllipsisType

import msgspec

from quorate.facts.keyspace import is_reserved, key_partition
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.tools import (
    AskColumns,
    AskRows,
    AskUpdates,
    RestoreRows,
    RowsRestored,
    UpdatesTold,
)
from quorate_spark_fixtures.scripted_agent import Answer, ScriptedAgent
from quorate_spark_fixtures.scripted_zone import ScriptedZone


class LoggedZone(ScriptedZone):
    """Each update is in one log; every copy has it.

    - `log_from`: of all copies
    - `while_read`: called before each chunk of rows is told, with the number of chunks so far
    - `can_replace`: false for agents of a version that replaces no rows
    - `refuses`: called for each request to restore; what it returns is the answer
    """

    def __init__(self, replicas: int = 3, partitions: int = 1) -> None:
        super().__init__(replicas, partitions)
        self.partitions = partitions
        self.logs: dict[int, list[Update]] = {partition: [] for partition in range(partitions)}
        self.log_from = 0
        self.while_read: Callable[[int], None] = lambda number: None
        self.refuses: Callable[[RestoreRows], RowsRestored | None] = lambda ask: None
        self.restored: list[RestoreRows] = []
        self.can_replace = True
        self._chunks = 0
        self._lock = threading.RLock()  # copies are read by several threads at once
        self._waited: set[RestoreRows] = set()
        for agent in self.agents:
            agent.on_ask = partial(self._on_ask, agent)
            agent.partitions = partitions

    def put(self, key: bytes, value: bytes | None, expires_at: int = 0) -> int:
        """One update of one key, in its partition."""
        return self.put_all([(key, value, expires_at)], key_partition(key, self.partitions))

    def put_all(self, rows: list[tuple[bytes, bytes | None, int]], partition: int) -> int:
        """One update of keys of one partition, in the term that the primary has."""
        with self._lock:
            counter = self._next[partition]
            self._next[partition] += 1
            self.logs[partition].append(Update(counter, self.copy(0, partition).term, tuple(rows)))
            for agent in range(len(self.agents)):
                copy = self.copy(agent, partition)
                for key, value, expires_at in rows:
                    copy.rows[key] = (counter, copy.term, expires_at, value)
                copy.advance(counter)
            return counter

    def apply_flush(self, agent: int, counter: int, partition: int = 0) -> None:
        """As FLUSHALL does: the protocol's own rows stay."""
        rows = self.copy(agent, partition).rows
        with self._lock:
            kept = {key: row for key, row in rows.items() if is_reserved(key)}
            super().apply_flush(agent, counter, partition)
            rows.update(kept)
        if agent == 0:
            self.logs[partition].append(Update(counter, 3, ((None, None, 0),)))

    def rows(self) -> dict[bytes, tuple[bytes | None, int]]:
        """Value and expiry of every key, as the primaries have them."""
        return {
            key: (row[3], row[2])
            for partition in range(self.partitions)
            for key, row in self.copy(0, partition).rows.items()
            if row[3] is not None
        }

    def _on_ask(self, agent: ScriptedAgent, message: Message) -> Answer | EllipsisType:
        match message:
            case AskRows():
                with self._lock:
                    rows = agent._rows(message)
                self._chunks += 1
                self.while_read(self._chunks)
                return rows
            case AskColumns():
                with self._lock:
                    columns = agent._columns(message)
                self._chunks += 1
                self.while_read(self._chunks)
                return columns
            case AskUpdates():
                return self._updates(agent, message)
            case RestoreRows():
                return self._restore(agent, message)
            case _:
                return ...

    def _updates(self, agent: ScriptedAgent, ask: AskUpdates) -> UpdatesTold:
        """Two updates at a time."""
        found = [u for u in self.logs[ask.partition] if ask.after < u.counter <= ask.upto]
        told = [u for u in found[:2] if u.counter > self.log_from]
        return UpdatesTold(
            ask.zone_name,
            ask.partition,
            found[1].counter if len(found) > 2 else None,
            agent.copies[ask.partition].lwm,
            self.log_from,
            tuple(msgspec.msgpack.encode(update) for update in told),
        )

    def _restore(self, agent: ScriptedAgent, ask: RestoreRows) -> RowsRestored:
        """Each request waits for a quorum once."""
        refused = self.refuses(ask)
        if refused is not None:
            return refused
        copy = agent.copies[ask.partition]
        if copy.replica_index:
            return RowsRestored(waits_for=f"agent {agent.name} to serve as its primary")
        if ask.replaces and ask.written[1] == copy.term:
            self.restored.append(ask)
            return RowsRestored(done=True)
        kept, missing = [], []
        for key, value, expires_at in ask.rows:
            row = copy.rows.get(key)
            if row is None or row[3] is None:
                missing.append((key, value, expires_at))
            elif (row[3], row[2]) != (value, expires_at):
                if ask.replaces and self.can_replace:
                    missing.append((key, value, expires_at))
                else:
                    kept.append(key)
        counter = self.put_all(list(missing), ask.partition) if missing else 0
        if ask not in self._waited:
            self._waited.add(ask)
            written = (counter, copy.term) if ask.replaces and self.can_replace else (0, 0)
            return RowsRestored(False, tuple(kept), "a quorum of the copies", written=written)
        self.restored.append(ask)
        return RowsRestored(done=True, kept=tuple(kept))
