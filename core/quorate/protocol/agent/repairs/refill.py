"""Replaces the rows of one copy by those of other owners, at a person's request.

It is used when the other copies out-vote this one.  The copy keeps its promise, log, positions and
vote.  Only its rows are copied, from the named owners, into a second generation beside the old
rows.  They replace the old rows in one write, and what the log holds above them is applied
(fill.Fill).  So no quorum shrinks meanwhile, and an interrupted refill leaves the copy as it was.

An agent that is the partition's primary reports the refill, and begins when the master has handed
the primary over.  It goes on while it is asked for.  Source: docs/protocol.md, section 5.
"""

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.protocol.agent import transfer
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.fill import Fill
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.tools import ASKED_MS_MAX, Refill, Refilling

AGAIN_MS = 1_000
"""Pause before a failed refill (a new term, no room) begins again."""


class _Wanted:
    """One requested refill.  `token` identifies it in repeated requests."""

    __slots__ = ("asked_ms", "begun_ms", "is_flushed", "suppliers", "token")

    def __init__(self, token: str, suppliers: tuple[str, ...], now_ms: int) -> None:
        self.token = token
        self.suppliers = suppliers
        self.asked_ms = now_ms
        self.begun_ms = now_ms - AGAIN_MS
        self.is_flushed = False  # its rows are in place, but may not be durable yet


class Refills:
    """The refills of one zone's copies on one agent."""

    def __init__(self, zone: ZoneCopies) -> None:
        self._zone = zone
        self._wanted: dict[int, _Wanted] = {}
        self._done: dict[int, str] = {}

    @property
    def partitions(self) -> tuple[int, ...]:
        """Partitions whose copies here are to be refilled; they should have other primaries."""
        return tuple(sorted(self._wanted))

    def ask(self, ask: Refill) -> Refilling:
        """Begin a refill, or continue it; return its progress.  Repeated requests change
        nothing."""
        partition, zone = ask.partition, self._zone
        if self._done.get(partition) == ask.token:
            return Refilling(ask.zone_name, partition, done=True)
        wanted = self._wanted.get(partition)
        if wanted is not None and wanted.token == ask.token and self._has_ended(partition, wanted):
            return _not_durable(ask)
        copy = zone.copies.get(partition)
        row = zone.table[partition] if 0 <= partition < len(zone.table) else None
        if copy is None or not copy.present or row is None:
            return self._refused(ask, f"no copy on agent {zone.me.node}")
        problem = self._problem(ask, row)
        if problem:
            return self._refused(ask, problem)
        now_ms = zone.now.boot_ms
        if wanted is None or (wanted.token, wanted.suppliers) != (ask.token, ask.suppliers):
            self._forget(partition)
            wanted = self._wanted[partition] = _Wanted(ask.token, ask.suppliers, now_ms)
        wanted.asked_ms = now_ms
        zone.wake()
        self._begin(partition, wanted)
        if self._has_ended(partition, wanted):
            return _not_durable(ask)
        fill = zone.fills.get(partition)
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
        me = self._zone.me.node
        if me not in row.owners:
            return f"agent {me} is not an owner, so it gets missing rows without a refill"
        if not ask.suppliers:
            return "no supplier is named"
        if not _able(ask.suppliers, row, me):
            named = ", ".join(ask.suppliers)
            owners = ", ".join(owner for owner in row.owners if owner != me)
            return f"agent {named} cannot supply the rows: the other owners are {owners or 'none'}"
        if self._zone.why_full:
            return f"no room on agent {me} for a second set of rows: {self._zone.why_full}"
        return ""

    def _waits_for(self, copy: Copy, partition: int) -> str:
        if partition in self._zone.roles:
            return "the primary to be handed over"
        return "its term" if not copy.adopted else "the next attempt"

    def tick(self, now: Now) -> None:
        """Begin the refills that can begin; cheap when there are none."""
        for partition, wanted in list(self._wanted.items()):
            if self._has_ended(partition, wanted):
                continue
            if now.boot_ms - wanted.asked_ms >= ASKED_MS_MAX:
                self._forget(partition)
            else:
                self._begin(partition, wanted)

    def _begin(self, partition: int, wanted: _Wanted) -> None:
        zone, now_ms = self._zone, self._zone.now.boot_ms
        copy = zone.copies[partition]
        if not copy.present:
            self._forget(partition)
            return
        if partition in zone.roles or partition in zone.fills or not copy.adopted:
            return
        if zone.primary_of(partition) == zone.me.node or zone.why_full:
            return
        row = zone.table[partition]
        suppliers = _able(wanted.suppliers, row, zone.me.node)
        if now_ms - wanted.begun_ms < AGAIN_MS or not suppliers:
            return
        wanted.begun_ms = now_ms
        fill = Fill(copy, copy.lineage, copy.lwm, suppliers, zone.settings, refill=wanted.token)
        transfer.begin(zone, fill)

    def _has_ended(self, partition: int, wanted: _Wanted) -> bool:
        """Return whether the new rows have replaced the old ones, perhaps not durably yet."""
        return wanted.is_flushed or self._zone.refilled.get(partition) == wanted.token

    def take_ended(self) -> dict[int, str]:
        """Return partition -> token of the refills that ended with this turn's written batch."""
        ended = self._zone.refilled
        if ended:
            self._zone.refilled = {}
            for partition, token in ended.items():
                wanted = self._wanted.get(partition)
                if wanted is not None and wanted.token == token:
                    wanted.is_flushed = True
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
        fill = self._zone.fills.get(partition)
        if fill is not None and fill.is_refill:
            self._zone.drop_fill(partition)


def _not_durable(ask: Refill) -> Refilling:
    return Refilling(ask.zone_name, ask.partition, waits_for="the new rows to be durable")


def _able(suppliers: tuple[str, ...], row: PartitionRow | None, me: str) -> tuple[str, ...]:
    """Return those of `suppliers` that own a copy now."""
    owners = row.owners if row is not None else ()
    return tuple(node for node in suppliers if node in owners and node != me)
