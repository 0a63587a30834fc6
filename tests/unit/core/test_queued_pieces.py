"""Pieces of full copies that wait at their supplier until the limit on its bytes allows them."""

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.transfer import FetchSnapshot, SnapshotChunk
from quorate.protocol.settings import ProtocolSettings
from quorate_agent.storage.memory import MemoryStorage

ZONE = ZoneRecord("uid-1", "books", 2, 2, StorageKind.IN_MEMORY)
ME = Holder("a", "s-a", 1)
SETTINGS = ProtocolSettings(transfer_bytes_per_s=4_000)
KEYS = [b"k%d" % number for number in range(5)]


class _Supplier:
    """The copies of an agent that sends 4,000 bytes per second; each row has 1,000."""

    def __init__(self) -> None:
        now, storage = Now(0, 0), MemoryStorage(1 << 20)
        self._now_ms = 0
        self.zone = Replicas(ZONE, ME, storage, Leases(SETTINGS, 1, 0), SETTINGS, now)
        for partition in range(2):
            copy = self.zone.copy_of(partition)
            copy.promise(1, ME)
            copy.adopt(EMPTY_LINEAGE.appended(Entry(1, 1)), 0, {})
            for key in KEYS:
                copy.write(((key, bytes(1_000), 0),))
        self.sent()

    def asked(self, node: str, partition: int, after: bytes | None) -> None:
        ask = FetchSnapshot(ZONE.uid, partition, 1, after, 1)
        self.zone.receive(node, ask, self._now())

    def sent(self) -> list[tuple[str, int, bytes | None]]:
        """To whom pieces were sent, of which partition, and behind which key, in a second."""
        sent: list[tuple[str, int, bytes | None]] = []
        for _ in range(10):
            self._now_ms += 100
            self.zone.tick(self._now())
            sent += [
                (node, message.partition, message.after)
                for node, message in self.zone.flush(self._now()).sends
                if isinstance(message, SnapshotChunk)
            ]
        return sent

    def _now(self) -> Now:
        return Now(self._now_ms, self._now_ms)


def _at_its_limit() -> _Supplier:
    supplier = _Supplier()
    supplier.asked("x", 0, None)
    supplier.asked("x", 1, None)
    return supplier


def test_a_request_that_is_repeated_is_answered_once() -> None:
    supplier = _at_its_limit()
    for _ in range(3):
        supplier.asked("b", 0, KEYS[0])

    assert supplier.sent().count(("b", 0, KEYS[0])) == 1


def test_a_later_request_takes_the_place_of_an_earlier_one() -> None:
    supplier = _at_its_limit()
    supplier.asked("b", 0, KEYS[0])
    supplier.asked("c", 0, KEYS[0])
    supplier.asked("b", 0, KEYS[2])

    assert supplier.sent()[-2:] == [("b", 0, KEYS[2]), ("c", 0, KEYS[0])]


def test_each_copy_and_each_partition_has_a_request_of_its_own() -> None:
    supplier = _at_its_limit()
    asked = [("b", 0, KEYS[0]), ("b", 1, KEYS[0]), ("c", 0, KEYS[0])]
    for node, partition, after in asked:
        supplier.asked(node, partition, after)

    assert supplier.sent()[-3:] == asked
