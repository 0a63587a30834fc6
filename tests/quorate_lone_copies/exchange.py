"""How a copy fills from other copies, and how it activates with what they hold."""

from collections.abc import Mapping

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.fill import Fill
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.supply import supply_keys, supply_snapshot, supply_updates
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import FenceAck
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Unavailable,
    Updates,
)

BYTES_MAX = 1 << 20


class Exchange:
    """A fill and the owners it may ask, without network.  `asked`: who was asked for what."""

    def __init__(self, fill: Fill, owners: Mapping[str, Copy], bytes_max: int = BYTES_MAX) -> None:
        self.fill = fill
        self._bytes_max = bytes_max
        self.owners = owners
        self.asked: list[tuple[str, str]] = []
        self.bytes_of_updates = 0
        self.now = 0

    def run(self, silent: tuple[str, ...] = (), asks: int = 100) -> None:
        """Until nothing is missing, or so many questions; time passes when one stays silent."""
        for _ in range(asks):
            if self.fill.is_complete():
                return
            for node, message in self.fill.ask("zone", self.now):
                self.asked.append((node, type(message).__name__))
                if node not in silent:
                    self._answer(node, message)
            self.now += 100

    def _answer(self, node: str, ask: Message) -> None:
        supplier, fill = self.owners[node], self.fill
        match _supplied(supplier, ask, self._bytes_max):
            case Updates() as answer:
                for raw in answer.updates:
                    self.bytes_of_updates += len(raw)
                    fill.copy.keep(decode_update(raw), raw)
                fill.take_updates(node, answer)
            case KeyRows() as answer:
                fill.take_keys(answer)
            case SnapshotChunk() as answer:
                fill.take_chunk(node, answer)
            case Unavailable():
                fill.unavailable(node)


def _supplied(
    supplier: Copy, ask: Message, bytes_max: int
) -> Updates | KeyRows | SnapshotChunk | Unavailable:
    if isinstance(ask, FetchUpdates):
        return supply_updates("zone", supplier, ask, bytes_max)
    if isinstance(ask, FetchKeys):
        return supply_keys("zone", supplier, ask)
    assert isinstance(ask, FetchSnapshot)
    return supply_snapshot("zone", supplier, ask)


def activate(node: str, copies: Mapping[str, Copy]) -> list[tuple[int, int]]:
    """Make `node` primary in the next term, with what the other voters report and supply.

    Return the gaps that it asked for.  The others have promised the term, and adopt it when they
    are filled.
    """
    copy = copies[node]
    term, holder = copy.promise_term + 1, Holder(node, f"store-{node}", 1)
    stores = {name: f"store-{name}" for name in copies}
    voters = tuple(Voter(name, store) for name, store in stores.items())
    row = PartitionRow(0, term, term, holder, (node, *[n for n in copies if n != node]), voters)
    role = Primary(copy, row, holder, stores, 0)
    for name, other in copies.items():
        assert other.promise(term, holder)
        ack = FenceAck(
            "zone", 0, term, stores[name], other.lineage, other.lwm, other.held(), 0, other.adopted
        )
        role.promised(name, ack, 0)
    assert role.has_quorum_promised()
    plan = role.gather()
    gaps = sorted(gap for ranges in plan.wanted.values() for gap in ranges)
    while plan.wanted:
        for name, ranges in plan.wanted.items():
            ask = FetchUpdates("zone", 0, term, tuple(ranges))
            answer = supply_updates("zone", copies[name], ask, BYTES_MAX)
            assert isinstance(answer, Updates)
            assert answer.updates
            for raw in answer.updates:
                copy.keep(decode_update(raw), raw)
        plan = role.gather()
    assert not plan.undo, "only this copy's own term is written: it has nothing to undo"
    role.adopt_own(plan)
    return gaps
