"""Tombstones that every copy is past are dropped in steps, by the primary and by its backups."""

import msgspec
import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent import upkeep
from quorate.protocol.agent.next_look import IDLE_LOOK_MS
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.replication import Append, Batch, Fence, Sync, Update
from quorate.protocol.settings import DEFAULTS
from quorate_lone_agent.core import PARTITIONS, TICK_MS, LoneAgent
from quorate_sim.disk import Image, SimStorage

EACH = 7
STEP = 5
TERM = 3
NOW = Now(100_000, 100_000)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PURGE_PER_TICK", STEP)


def _rows(zone: Replicas) -> int:
    """Return how many rows there are, tombstones too, as many as are noted."""
    found = sum(len(copy.space.scan(None, 1000, 1 << 20)) for copy in zone.copies.values())
    assert found == sum(len(copy.tombstones) for copy in zone.copies.values())
    return found


def test_a_primary_drops_few_with_each_tick_over_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone = agent.core.zones["zone-0"]
    for role in zone.roles.values():
        for number in range(EACH):
            role.write(((b"%d" % number, None, 0),))
        zone.commands_wrote(role)
    agent.turn()
    left = [_rows(zone)]
    assert left == [EACH * PARTITIONS]
    while left[-1] and agent.ms < 10 * IDLE_LOOK_MS:
        agent.pass_time(TICK_MS)
        if _rows(zone) < left[-1]:
            left.append(_rows(zone))

    assert left == [28, 23, 18, 13, 8, 3, 0]
    agent.pass_time(IDLE_LOOK_MS)
    assert zone.at_rest


def test_where_more_is_deleted_more_is_dropped_with_each_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    rate, ticks = 4 * STEP, 3 * DEFAULTS.announce_ms // TICK_MS
    most = 0
    for at in range(10 * ticks):
        for number in range(rate):
            role.write(((b"%d-%d" % (at, number), None, 0),))
        zone.commands_wrote(role)
        agent.pass_time(TICK_MS)
        most = max(most, _rows(zone))

    assert most <= ticks * rate


def test_a_partition_with_much_to_drop_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone = agent.core.zones["zone-0"]
    for partition, role in zone.roles.items():
        for number in range(20 * STEP if partition == 0 else 1):
            role.write(((b"%d" % number, None, 0),))
        zone.commands_wrote(role)
    agent.turn()
    copies = [zone.copies[partition] for partition in range(PARTITIONS)]
    while any(copy.tombstones for copy in copies[1:]) and agent.ms < 10 * IDLE_LOOK_MS:
        agent.pass_time(TICK_MS)

    assert not any(copy.tombstones for copy in copies[1:])
    assert len(copies[0].tombstones) > 10 * STEP


def test_a_backup_drops_few_with_each_tick() -> None:
    zone, _ = _backup()
    updates = [Update(n + 1, TERM, ((b"%d" % n, None, 0),)) for n in range(EACH)]
    encoded = tuple(map(msgspec.msgpack.encode, updates))
    zone.receive("b", Append("uid-1", (Batch(0, TERM, EACH, 0, 0, encoded),)), NOW)
    zone.synced(zone.flush(NOW), NOW)
    zone.tick(NOW)  # they do not come since the last one

    zone.receive("b", Append("uid-1", (Batch(0, TERM, EACH, EACH, EACH - 1, ()),)), NOW)
    assert _rows(zone) == EACH

    zone.tick(NOW)
    assert _rows(zone) == EACH - STEP
    zone.synced(zone.flush(NOW), NOW)
    zone.tick(NOW)
    assert _rows(zone) == 1
    zone.tick(NOW)
    assert _rows(zone) == 1
    assert not zone.purging


def test_an_earlier_tombstone_is_noted_again_when_the_turn_is_not_written() -> None:
    zone, storage = _backup()
    copy = zone.copies[0]
    for counter, key in enumerate((b"k", b"other", b"k"), start=1):
        update = msgspec.msgpack.encode(Update(counter, TERM, ((key, None, 0),)))
        zone.receive("b", Append("uid-1", (Batch(0, TERM, counter, 0, 0, (update,)),)), NOW)
        if counter < 3:
            zone.flush(NOW)
    assert [*copy.tombstones.items()] == [(b"other", 2), (b"k", 3)]

    storage.refuse = True
    zone.flush(NOW)

    assert [*copy.tombstones.items()] == [(b"k", 1), (b"other", 2)]


def _backup() -> tuple[Replicas, SimStorage]:
    """Agent a, whose copy follows b."""
    me, of = Holder("a", "s-a", 1), Holder("b", "s-b", 1)
    storage = SimStorage(Image())
    record, leases = ZoneRecord("uid-1", "books", 1, 2), Leases(DEFAULTS, 1, 0)
    zone = Replicas(record, me, storage, leases, DEFAULTS, NOW)
    zone.set_members([NodeRecord(n, f"s-{n}", 1, n, 1, n) for n in "ab"])
    voters = tuple(Voter(node, f"s-{node}") for node in "ab")
    zone.set_rows([PartitionRow(0, TERM, TERM, of, ("b", "a"), voters)], NOW)
    zone.receive("b", Fence("uid-1", 0, TERM, of), NOW)
    zone.receive("b", Sync("uid-1", 0, TERM, Lineage(0, 0, (Entry(TERM, 1),)), 0), NOW)
    zone.synced(zone.flush(NOW), NOW)
    return zone, storage
