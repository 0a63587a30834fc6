"""The rows of a copy are searched for tombstones and expiries in bounded steps, and without its
long values."""

from pathlib import Path

import pytest

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent import upkeep
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.upkeep import SURVEY_BYTES, SURVEY_ROWS
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import Storage
from quorate_agent.storage.long_values import LONG_BYTES, LongValues
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage

ME = Holder("a", "s-a", 1)
DUE = 1 << 40
NOW = Now(1_000_000, 1_000)
LATER = Now(1_100_000, 101_000)
ZONE = ZoneRecord("uid-1", "books", 4, 1, StorageKind.PERSISTENT)


def zone_on(storage: Storage) -> Replicas:
    zone = Replicas(ZONE, ME, storage, Leases(DEFAULTS, 1, 0), DEFAULTS, NOW)
    zone.set_members([NodeRecord("a", "s-a", 1, "h", 1, "h")])
    return zone


def copy_of(zone: Replicas, partition: int = 0) -> Copy:
    copy = zone.copy_of(partition)
    copy.promise(1, ME)
    copy.adopt(EMPTY_LINEAGE.appended(Entry(1, 1)), 0, {})
    return copy


def commit(zone: Replicas, copy: Copy) -> None:
    zone.touch(copy)
    zone.flush(NOW)
    copy.tombstones.clear()
    copy.expiring.clear()


def served(zone: Replicas) -> Primary:
    row = PartitionRow(0, 2, 2, ME, ("a",), (Voter("a", "s-a"),))
    zone.set_rows([row], NOW)
    for _ in range(5):
        zone.synced(zone.flush(NOW), NOW)
        zone.tick(NOW)
    role = zone.roles[0]
    assert role.serves(NOW.boot_ms)
    return role


def test_no_long_value_is_read_also_while_the_turn_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: LongValues, reference: bytes) -> bytes:
        raise AssertionError("a long value is read")

    storage = RocksStorage(tmp_path / "zone")
    zone = zone_on(storage)
    copy = copy_of(zone)
    copy.write(((b"gone", b"", 0),))
    copy.write(((b"gone", None, 0), (b"long", bytes(LONG_BYTES + 1), 0)))
    copy.write(((b"short", b"value", 0),))
    commit(zone, copy)
    monkeypatch.setattr(LongValues, "read", fails)
    zone.survey(copy)
    copy.write(((b"another", b"", 0),))
    zone.upkeep.tick(NOW)

    assert not zone.surveys
    assert copy.tombstones == {b"gone": 2}
    storage.close()


def test_what_one_step_reads_is_bounded_over_all_partitions(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "zone")
    zone = zone_on(storage)
    for partition in range(ZONE.partitions):
        copy = copy_of(zone, partition)
        for number in range(2):
            copy.write(((b"%d" % number, bytes(SURVEY_BYTES // 3), 0),))
        commit(zone, copy)
        zone.survey(copy)

    left: list[int] = []
    while zone.surveys:
        zone.upkeep.tick(NOW)
        left.append(len(zone.surveys))

    assert left == [3, 2, 0]
    storage.close()


@pytest.mark.parametrize("rows", [SURVEY_ROWS, 7], ids=["in one step", "in several"])
def test_tombstones_are_noted_in_the_order_of_their_counters(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(upkeep, "SURVEY_ROWS", rows)
    zone = zone_on(MemoryStorage())
    copy = copy_of(zone)
    for number in range(20):
        copy.write(((b"%02d" % (19 - number), None, 0),))
    commit(zone, copy)
    copy.settled = 12

    zone.survey(copy)
    while zone.surveys:
        zone.upkeep.tick(NOW)
    while zone.purging:
        zone.upkeep.tick(NOW)

    assert [*copy.tombstones.items()] == [(b"%02d" % (20 - n), n) for n in range(13, 21)]
    assert copy.space.scan_keys(None, 100, 1 << 20).counters == [*range(20, 12, -1)]


def test_the_survey_of_a_copy_that_is_evicted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "SURVEY_ROWS", 7)
    zone = zone_on(MemoryStorage())
    copy = copy_of(zone)
    for number in range(20):
        copy.write(((b"%02d" % number, None, 0),))
    commit(zone, copy)
    zone.survey(copy)
    zone.upkeep.tick(NOW)
    assert zone.surveys

    others = PartitionRow(0, 2, 2, Holder("b", "s-b", 1), ("b",), (Voter("b", "s-b"),))
    zone.set_rows([others], NOW)
    zone.upkeep.tick(NOW)

    assert not copy.present
    assert not copy.tombstones
    assert not zone.surveys


def test_a_tombstone_that_was_noted_later_stays_so() -> None:
    zone = zone_on(MemoryStorage())
    copy = copy_of(zone)
    for key in (b"a", b"b", b"a"):
        copy.write(((key, None, 0),))
    commit(zone, copy)
    zone.survey(copy)
    copy.write(((b"b", None, 0),))
    zone.upkeep.tick(NOW)

    assert [*copy.tombstones.items()] == [(b"a", 3), (b"b", 4)]


def test_only_a_primary_notes_when_its_keys_expire() -> None:
    zone = zone_on(MemoryStorage())
    copy = copy_of(zone)
    copy.write(((b"k", b"value", DUE),))
    commit(zone, copy)

    zone.survey(copy)
    zone.upkeep.tick(NOW)
    assert not zone.surveys
    assert copy.expiring.due == {}

    role = served(zone)
    assert copy.expiring.due == {b"k": DUE}

    zone.survey(copy)
    zone.end_role(role)
    zone.upkeep.tick(NOW)
    assert not zone.surveys
    assert copy.expiring.due == {}
