"""The core of an agent alone, without clients; it counts the visits of each zone."""

from collections import Counter

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.next_look import IDLE_LOOK_MS
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Members, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.settings import DEFAULTS
from quorate_sim.disk import Image, SimStorage

TICK_MS = 50
PARTITIONS = 4
_A = Holder("a", "store-a", 1)


class _Store:
    """Opens every zone."""

    def open_zone(self, record: ZoneRecord) -> SimStorage:
        return SimStorage(Image())

    def keep_zone(self, record: ZoneRecord) -> bool:
        return True

    def kept_zones(self) -> list[ZoneRecord]:
        return []

    def remove_zone(self, uid: str) -> bool:
        return True

    def raise_master_term(self, term: int, word: str) -> None:
        pass


class LoneAgent:
    """The core of an agent that is primary of all partitions of some zones; `visits` of each."""

    def __init__(self, zones: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 10_000
        self.wall_ahead_ms = 1_000_000
        self.visits: Counter[str] = Counter()
        self.flushes: Counter[str] = Counter()
        self.sent: list[tuple[str, Message]] = []
        tick, flush = Replicas.tick, Replicas.flush

        def counted(replicas: Replicas, now: Now) -> None:
            self.visits[replicas.uid] += 1
            tick(replicas, now)

        def flushed(replicas: Replicas, now: Now) -> Turn:
            self.flushes[replicas.uid] += 1
            return flush(replicas, now)

        monkeypatch.setattr(Replicas, "tick", counted)
        monkeypatch.setattr(Replicas, "flush", flushed)
        hello = Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1)
        self.core = AgentCore(hello, _Store(), DEFAULTS, self.now)
        members = Members(1, (NodeRecord("a", "store-a", 1, "a", 1, "a"),), 1)
        assert self.core.receive_from_master(members, self.now)
        for number in range(zones):
            self.tell(f"zone-{number}", 1)
            self.turn()
        self.pass_time(4 * IDLE_LOOK_MS)
        self.visits.clear()
        self.flushes.clear()

    @property
    def now(self) -> Now:
        return Now(self.wall_ahead_ms + self.ms, self.ms)

    def tell(self, uid: str, version: int) -> None:
        rows = tuple(
            PartitionRow(p, version, version, _A, ("a",), (Voter("a", "store-a"),))
            for p in range(PARTITIONS)
        )
        table = ZoneTable(1, ZoneRecord(uid, uid, PARTITIONS, 1), rows, 1)
        assert self.core.receive_from_master(table, self.now)

    def turn(self) -> None:
        flushed = self.core.flush(self.now)
        self.sent += flushed.sends
        for uid, turn in flushed.turns:
            self.core.synced(uid, turn, self.now)

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.ms += TICK_MS
            self.core.tick(self.now)
            self.turn()

    def role(self, uid: str = "zone-0") -> Primary:
        """The role in the first partition of a zone."""
        return self.core.zones[uid].roles[0]

    def write(self, uid: str, key: bytes, expires_at: int = 0) -> None:
        """Write into the first partition of a zone; durable at once."""
        role = self.role(uid)
        role.write(((key, b"value", expires_at),))
        self.core.zones[uid].commands_wrote(role)
        self.turn()
