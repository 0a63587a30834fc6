"""A filling copy tells the master its progress; a full copy does so before its first rows.

An election that needs a full copy waits for it from its first report on.
"""

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.fill import FullReason
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.master import TransferProgress
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Fence, Sync
from quorate.protocol.settings import ProtocolSettings
from quorate_sim.disk import Image, SimStorage

ZONE = ZoneRecord("uid-1", "books", 1, 3)
SETTINGS = ProtocolSettings()
START_MS = 100_000
TERM = 3


def _holder(node: str) -> Holder:
    return Holder(node, f"store-{node}", 1)


def _filling(lineage: Lineage) -> Replicas:
    """Agent a, whose empty copy is to adopt a term of b, which never answers."""
    start, leases = Now(START_MS, START_MS), Leases(SETTINGS, 1, 0)
    replicas = Replicas(ZONE, _holder("a"), SimStorage(Image()), leases, SETTINGS, start)
    replicas.set_members([NodeRecord(n, f"store-{n}", 1, n, 1, n) for n in "abc"])
    voters = tuple(Voter(node, f"store-{node}") for node in "abc")
    row = PartitionRow(0, TERM, TERM, _holder("b"), ("b", "a", "c"), voters)
    replicas.set_rows([row], start)
    replicas.receive("b", Fence(ZONE.uid, 0, TERM, _holder("b")), start)
    replicas.receive("b", Sync(ZONE.uid, 0, TERM, lineage, 0), start)
    replicas.flush(start)
    return replicas


def _told(replicas: Replicas, after_ms: int) -> list[TransferProgress]:
    """The reports that the master gets at this time."""
    now = Now(START_MS + after_ms, START_MS + after_ms)
    replicas.tick(now)
    sent = replicas.flush(now).sends
    return [said for to, said in sent if to == MASTER and isinstance(said, TransferProgress)]


def test_a_full_copy_is_reported_before_its_first_rows_and_then_at_each_retry() -> None:
    replicas = _filling(Lineage(TERM - 1, 5, (Entry(TERM, 6),)))
    assert replicas.fills[0].full_reason == FullReason.EMPTY_STORE

    begun = TransferProgress(ZONE.uid, 0, 0, 0, FullReason.EMPTY_STORE)
    assert _told(replicas, 0) == [begun]
    assert _told(replicas, SETTINGS.retry_ms - 1) == []
    assert _told(replicas, SETTINGS.retry_ms) == [begun]


def test_a_delta_is_not_reported_before_its_first_updates() -> None:
    replicas = _filling(Lineage(0, 0, (Entry(TERM - 1, 1), Entry(TERM, 6))))

    assert not replicas.fills[0].is_full
    assert _told(replicas, 0) == []
    assert _told(replicas, SETTINGS.retry_ms) == []
