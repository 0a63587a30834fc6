"""What an agent tells of its copies' digests while it still counts the rows of some."""

import pytest

from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent import upkeep
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.totals import row_digest
from quorate.protocol.messages.tools import AskDigests, CopyDigest, Digests
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Row
from quorate_agent.process import tools
from quorate_agent.storage.memory import MemoryStorage


@pytest.fixture
def zone() -> Replicas:
    """Two copies in memory, of 5 and of 4 rows."""
    record = ZoneRecord("u", "z", 2, 1, StorageKind.IN_MEMORY)
    settings = ProtocolSettings()
    made = Replicas(
        record,
        Holder("a", "s", 1),
        MemoryStorage(),
        Leases(settings, 1, 0),
        settings,
        Now(0, 0),
    )
    for partition, rows in ((0, 5), (1, 4)):
        copy = made.copy_of(partition)
        copy.present = True
        for number in range(rows):
            copy.space.put(b"k%d" % number, Row(number + 1, 1, 0, b"v"))
    return made


def ask(zone: Replicas) -> dict[int, CopyDigest]:
    answer = tools.answer_tool(
        AskDigests("z", (0, 1)), "a", [zone], debug_commands=False, now=Now(0, 0)
    )
    assert isinstance(answer, Digests)
    assert not answer.problem
    return {copy.partition: copy for copy in answer.copies}


def scanned(zone: Replicas, partition: int) -> bytes:
    rows = zone.copies[partition].space.scan(None, 100, 1 << 20)
    return (sum(row_digest(*row) for row in rows) % (1 << 128)).to_bytes(16)


def test_who_asks_again_hears_of_all_copies(
    zone: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "COUNTED_ROWS_MAX", 6)

    assert list(ask(zone)) == [0]
    found = ask(zone)
    assert {partition: copy.digest for partition, copy in found.items()} == {
        0: scanned(zone, 0),
        1: scanned(zone, 1),
    }


def test_writes_are_followed_while_digests_are_asked_for_and_no_longer(zone: Replicas) -> None:
    ask(zone)
    space = zone.copies[0].space
    space.put(b"k1", Row(9, 1, 0, b"other"))

    assert ask(zone)[0].digest == scanned(zone, 0)

    zone.tick(Now(upkeep.DIGEST_KEPT_MS, upkeep.DIGEST_KEPT_MS))
    assert space.count_digest(100) == 5  # all of them are to be counted anew
