"""Replaces the rows of one copy by those of other owners, at a person's request.

It is used when the other copies out-vote this one.  The copy keeps its promise, log, positions and
vote.  Only its rows are copied, from the named owners, into a second generation beside the old
rows.  They replace the old rows in one write, and what the log holds above them is applied
(fill.Fill).  So no quorum shrinks meanwhile, and an interrupted refill leaves the copy as it was.

An agent that is the partition's primary reports the refill, and begins when the master has handed
the primary over.  It goes on while it is asked for.  Source: docs/protocol.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.agent import transfer
from quorate.protocol.copies.fill import Fill
from quorate.protocol.messages.tools import Refill, Refilling

if TYPE_CHECKING:
    from quorate.facts.partition_row import PartitionRow
    from quorate.facts.time import Now
    from quorate.protocol.agent.replicas import Replicas
    from quorate.protocol.copies.copy import Copy

ASKED_MS_MAX = 10_000
"""A refill that was not requested again for this long is given up."""

AGAIN_MS = 1_000
"""Pause before a failed refill (a new term, no room) begins again."""


class _Wanted:
    """One requested refill.  `token` identifies it in repeated requests."""

    __slots__ = ("asked_ms", "begun_ms", "has_ended", "suppliers", "token")

    def __init__(self, token: str, suppliers: tuple[str, ...], now_ms: int) -> None:
        self.token = token
        self.suppliers = suppliers
        self.asked_ms = now_ms
        self.begun_ms = now_ms - AGAIN_MS
        self.has_ended = False  # its rows are in place, but may not be durable yet


class Refills:
    """The refills of one zone's copies on one agent."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._wanted: dict[int, _Wanted] = {}
        self._ended: dict[int, str] = {}  # those that ended with this turn's batch
        self._done: dict[int, str] = {}

    @property
    def partitions(self) -> tuple[int, ...]:
        """Partitions whose copies here are to be refilled; they should have other primaries."""
        return tuple(sorted(self._wanted))

    def ask(self, ask: Refill) -> Refilling:
        """Begin a refill, or continue it; return its progress.  Repeated requests change
        nothing."""
        partition, replicas = ask.partition, self._replicas
        if self._done.get(partition) == ask.token:
            return Refilling(ask.zone_name, partition, done=True)
        wanted = self._wanted.get(partition)
        if wanted is not None and wanted.has_ended and wanted.token == ask.token:
            return _not_durable(ask)
        copy = replicas.copies.get(partition)
        row = replicas.table[partition] if 0 <= partition < len(replicas.table) else None
        if copy is None or not copy.present or row is None:
            return self._refused(ask, f"no copy on agent {replicas.me.node}")
        problem = self._problem(ask, row)
        if problem:
            return self._refused(ask, problem)
        now_ms = replicas.now.boot_ms
        if wanted is None or (wanted.token, wanted.suppliers) != (ask.token, ask.suppliers):
            self._forget(partition)
            wanted = self._wanted[partition] = _Wanted(ask.token, ask.suppliers, now_ms)
        wanted.asked_ms = now_ms
        replicas.wake()
        self._begin(partition, wanted)
        if wanted.has_ended:
            return _not_durable(ask)
        fill = replicas.fills.get(partition)
        if fill is None or not fill.is_refill:
            return Refilling(ask.zone_name, partition, waits_for=self._waits_for(copy, partition))
        return Refilling(
            ask.zone_name,
            partition,
            waits_for=f"rows from {fill.supplier}",
            bytes_done=fill.bytes_done,
            bytes_total=max(fill.bytes_total, fill.bytes_done),
        )

    def _refused(self, ask: Refill, problem: str) -> Refilling:
        self._forget(ask.partition)
        problem = f"partition {ask.partition}: {problem}"
        return Refilling(ask.zone_name, ask.partition, problem=problem)

    def _problem(self, ask: Refill, row: PartitionRow) -> str:
        me = self._replicas.me.node
        if me not in row.owners:
            return f"agent {me} is not an owner, so it gets missing rows without a refill"
        if not ask.suppliers:
            return "no supplier is named"
        if not _able(ask.suppliers, row, me):
            named = ", ".join(ask.suppliers)
            owners = ", ".join(owner for owner in row.owners if owner != me)
            return f"agent {named} cannot supply the rows: the other owners are {owners or 'none'}"
        if self._replicas.why_full:
            return f"no room on agent {me} for a second set of rows: {self._replicas.why_full}"
        return ""

    def _waits_for(self, copy: Copy, partition: int) -> str:
        if partition in self._replicas.roles:
            return "the primary to be handed over"
        return "its term" if not copy.adopted else "the next attempt"

    def tick(self, now: Now) -> None:
        """Begin the refills that can begin; cheap when there are none."""
        for partition, wanted in list(self._wanted.items()):
            if wanted.has_ended:
                continue
            if now.boot_ms - wanted.asked_ms >= ASKED_MS_MAX:
                self._forget(partition)
            else:
                self._begin(partition, wanted)

    def _begin(self, partition: int, wanted: _Wanted) -> None:
        replicas, now_ms = self._replicas, self._replicas.now.boot_ms
        copy = replicas.copies[partition]
        if not copy.present:
            self._forget(partition)
            return
        if partition in replicas.roles or partition in replicas.fills or not copy.adopted:
            return
        if replicas.primary_of(partition) == replicas.me.node or replicas.why_full:
            return
        row = replicas.table[partition]
        suppliers = _able(wanted.suppliers, row, replicas.me.node)
        if now_ms - wanted.begun_ms < AGAIN_MS or not suppliers:
            return
        wanted.begun_ms = now_ms
        fill = Fill(copy, copy.lineage, copy.lwm, suppliers, replicas.settings, is_refill=True)
        transfer.begin(replicas, fill)

    def ended(self, partition: int) -> None:
        """Note that the new rows have replaced the old ones, with this turn's batch."""
        wanted = self._wanted.get(partition)
        if wanted is not None:
            wanted.has_ended = True
            self._ended[partition] = wanted.token

    def undone(self) -> None:
        """Have refills that ended in this turn begin again, because its batch was refused."""
        for partition in self._ended:
            wanted = self._wanted.get(partition)
            if wanted is not None:
                wanted.has_ended = False
        self._ended = {}

    @property
    def has_ended(self) -> bool:
        """Whether a refill ended with this turn's batch."""
        return bool(self._ended)

    def take_ended(self) -> dict[int, str]:
        """Return partition -> token of the refills that ended with this turn's written batch."""
        ended = self._ended
        if ended:
            self._ended = {}
        return ended

    def durable(self, ended: dict[int, str]) -> None:
        """Note that these refills are done, because their batch is durable."""
        for partition, token in ended.items():
            self._done[partition] = token
            wanted = self._wanted.get(partition)
            if wanted is not None and wanted.token == token:
                del self._wanted[partition]

    def _forget(self, partition: int) -> None:
        self._wanted.pop(partition, None)
        fill = self._replicas.fills.get(partition)
        if fill is not None and fill.is_refill:
            self._replicas.drop_fill(partition)


def _not_durable(ask: Refill) -> Refilling:
    return Refilling(ask.zone_name, ask.partition, waits_for="the new rows to be durable")


def _able(suppliers: tuple[str, ...], row: PartitionRow | None, me: str) -> tuple[str, ...]:
    """Return those of `suppliers` that own a copy now."""
    owners = row.owners if row is not None else ()
    return tuple(node for node in suppliers if node in owners and node != me)
