"""The limit on what an agent supplies to other agents' copies, over all its zones."""

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.supply_rate import SupplyRate
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Updates,
)
from quorate.protocol.settings import ProtocolSettings
from quorate_agent.storage.memory import MemoryStorage

ME = Holder("a", "s-a", 1)
SETTINGS = ProtocolSettings(transfer_bytes_per_s=4_000)
KEYS = tuple(b"k%d" % number for number in range(10))
TICKS = 10
"""So many are a second."""


class _Agent:
    """An agent with two zones that sends 4,000 bytes per second; each row has 1,000."""

    def __init__(self) -> None:
        self._now_ms = 0
        leases, rate = Leases(SETTINGS, 1, 0), SupplyRate(SETTINGS.transfer_bytes_per_s)
        self.zones: list[Replicas] = []
        for uid in ("x", "y"):
            record = ZoneRecord(uid, uid, 1, 2, StorageKind.IN_MEMORY)
            storage = MemoryStorage(1 << 20)
            zone = Replicas(record, ME, storage, leases, SETTINGS, self.now(), rate)
            copy = zone.copy_of(0)
            copy.promise(1, ME)
            copy.adopt(EMPTY_LINEAGE.appended(Entry(1, 1)), 0, {})
            for key in KEYS:
                copy.write(((key, bytes(1_000), 0),))
            self.zones.append(zone)
        self.ticks(TICKS)

    def asked(self, zone: Replicas, node: str, after: bytes | None = None) -> None:
        """`node` wants the next row of the zone's copy."""
        zone.receive(node, FetchSnapshot(zone.uid, 0, 1, after, 1), self.now())

    def ticks(self, count: int) -> list[tuple[str, Message]]:
        """Let time pass; return what was sent, by zone."""
        sent: list[tuple[str, Message]] = []
        for _ in range(count):
            self._now_ms += 1000 // TICKS
            for zone in self.zones:
                zone.tick(self.now())
            sent += self.sent()
        return sent

    def sent(self) -> list[tuple[str, Message]]:
        """Return what was sent since it was last asked, by zone."""
        return [
            (zone.uid, message)
            for zone in self.zones
            for _, message in zone.flush(self.now()).sends
        ]

    def now(self) -> Now:
        """Return the time of the agent's clocks."""
        return Now(self._now_ms, self._now_ms)


def _pieces(sent: list[tuple[str, Message]]) -> list[str]:
    return [uid for uid, message in sent if isinstance(message, SnapshotChunk)]


def test_all_zones_of_an_agent_share_its_limit_and_take_turns() -> None:
    agent = _Agent()
    for number in range(10):
        for zone in agent.zones:
            agent.asked(zone, f"n{number}")
    agent.sent()

    pieces = _pieces(agent.ticks(2 * TICKS))

    assert 7 <= len(pieces) <= 9
    assert abs(pieces.count("x") - pieces.count("y")) <= 1


def test_full_copies_wait_for_the_bytes_of_deltas_which_wait_for_nothing() -> None:
    agent = _Agent()
    x, y = agent.zones
    y.receive("c", FetchUpdates("y", 0, 1, ((1, 4),)), agent.now())
    y.receive("c", FetchKeys("y", 0, 1, KEYS[:4]), agent.now())

    answers = [message for _, message in agent.sent()]
    agent.asked(x, "b")
    waiting, later = _pieces(agent.ticks(TICKS)), _pieces(agent.ticks(TICKS))

    assert [type(message) for message in answers] == [Updates, KeyRows]
    assert waiting == []
    assert later == ["x"]


def test_a_zone_that_is_closed_leaves_the_turn_to_the_others() -> None:
    agent = _Agent()
    x, y = agent.zones
    for node in "bcd":
        agent.asked(x, node)
        agent.asked(y, node)
    agent.sent()
    x.close()

    assert _pieces(agent.ticks(2 * TICKS)) == ["y", "y", "y"]
    assert not x.upkeep.has_pieces
    assert y.upkeep.is_idle
