"""A turn of a master with many zones is bounded: what its shell does besides must not wait."""

from typing import Any

import pytest

from quorate.facts.time import Now
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.master import migration_queue
from quorate.protocol.master.master import DECIDE_MS, Master
from quorate.protocol.master.migration_queue import MigrationQueue
from quorate.protocol.members.cluster import PASSES_MAX, Cluster
from quorate.protocol.messages.master import Inventory, TransferProgress
from quorate.protocol.zone_master import first_placement, rebalance
from quorate.protocol.zone_master.zone_master import QUIET_PASS_MS, ZoneMaster
from quorate_lone_master.world import LoneMaster

ZONES = 5 * PASSES_MAX


class Turns:
    """What each turn looked at as a whole or placed, and when the next one was due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes: list[int] = []
        self.due_ms: list[int] = []
        self.looked: set[str] = set()
        self._now = 0
        self.placed: list[int] = []
        self._placed = 0
        distribute = first_placement.distribute_partitions
        may_pass, turn, decide = Cluster.may_pass, Master.decide, ZoneMaster.decide

        def counted(cluster: Cluster) -> bool:
            may = may_pass(cluster)
            self._now += may
            return may

        def in_turn(master: Master, now: Now) -> None:
            self._now = self._placed = 0
            turn(master, now)
            self.placed.append(self._placed)
            self.passes.append(self._now)
            self.due_ms.append(master.next_deadline_ms - now.boot_ms)

        def noted(zone: ZoneMaster, now: Now) -> None:
            before = self._now
            decide(zone, now)
            if self._now > before:
                self.looked.add(zone.record.uid)

        def placed(*arguments: Any) -> Any:
            self._placed += 1
            return distribute(*arguments)

        monkeypatch.setattr(first_placement, "distribute_partitions", placed)
        monkeypatch.setattr(Cluster, "may_pass", counted)
        monkeypatch.setattr(Master, "decide", in_turn)
        monkeypatch.setattr(ZoneMaster, "decide", noted)

    def check(self) -> None:
        assert max(self.passes) == PASSES_MAX
        for passes, due_ms in zip(self.passes, self.due_ms, strict=True):
            assert due_ms == (1 if passes == PASSES_MAX else DECIDE_MS)


def zones() -> list[ZoneRecord]:
    return [
        ZoneRecord(f"uid-{number:03}", f"zone-{number}", 4, 3, StorageKind.IN_MEMORY)
        for number in range(ZONES)
    ]


def test_zones_that_wait_for_an_agent_are_placed_some_in_a_turn_and_the_next_is_due_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lone = LoneMaster(nodes=("a", "b"))
    for zone in zones():
        lone.master.set_zone(zone, lone.now)
    lone.write()
    turns = Turns(monkeypatch)

    lone.connect("c")
    lone.pass_time(1_000)

    assert max(turns.placed) == PASSES_MAX
    assert all(len(zone.parts) == 4 for zone in lone.master.zones.values())
    turns.check()


def test_after_a_change_of_the_agents_steps_of_few_zones_are_planned_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of all zones in one turn took a second with 950 zones; no agent was heard meanwhile."""
    lone = LoneMaster(*zones())
    lone.pass_time(2 * QUIET_PASS_MS)
    planned: list[int] = []
    plan_step, start, tick = rebalance.plan_step, MigrationQueue.start, Master.tick

    def counted(*arguments: Any) -> Any:
        planned[-1] += 1
        return plan_step(*arguments)

    def in_queue(queue: MigrationQueue, now: Now) -> None:
        before = planned[-1]
        start(queue, now)
        assert planned[-1] == before, "the queue of all zones has nothing left to plan"

    def in_tick(master: Master, now: Now) -> None:
        planned.append(0)
        tick(master, now)

    planned.append(0)
    monkeypatch.setattr(rebalance, "plan_step", counted)
    monkeypatch.setattr(MigrationQueue, "start", in_queue)
    monkeypatch.setattr(Master, "tick", in_tick)

    lone.connect("d")
    for _ in range(2 * ZONES // PASSES_MAX):
        lone.ms += DECIDE_MS
        lone.master.tick(lone.now)

    assert sum(planned) >= 4 * ZONES
    assert max(planned[1:]) <= 4 * PASSES_MAX  # `connect` is several turns


def test_where_all_zones_wait_for_an_agent_few_steps_are_planned_in_a_turn_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows wait in the queue then, which plans some in a turn, and all in the end."""
    monkeypatch.setattr(migration_queue, "PLANS_MAX", 10)
    lone = LoneMaster(*zones())
    lone.pass_time(2 * QUIET_PASS_MS)
    lone.kill("a")
    lone.pass_time(5_000)
    assert sum(zone.queue_length for zone in lone.master.zones.values()) == 4 * ZONES
    planned: list[int] = []
    plan_step, start = rebalance.plan_step, MigrationQueue.start

    def counted(*arguments: Any) -> Any:
        planned[-1] += 1
        return plan_step(*arguments)

    def in_queue(queue: MigrationQueue, now: Now) -> None:
        planned.append(0)
        start(queue, now)
        assert planned[-1] <= 10
        planned.append(0)

    planned.append(0)
    monkeypatch.setattr(rebalance, "plan_step", counted)
    monkeypatch.setattr(MigrationQueue, "start", in_queue)

    lone.connect("a")
    lone.pass_time(10_000)

    assert sum(planned) >= 4 * ZONES
    assert sum(zone.queue_length for zone in lone.master.zones.values()) == 0


@pytest.mark.parametrize("late_ms", [DECIDE_MS, QUIET_PASS_MS], ids=["in time", "late"])
def test_every_zone_has_its_turn_however_late_the_turns_come(
    monkeypatch: pytest.MonkeyPatch, late_ms: int
) -> None:
    """Where a turn takes so long that the first zones are due again, they do not come first."""
    lone = LoneMaster(*zones())
    lone.ms += QUIET_PASS_MS
    turns = Turns(monkeypatch)

    for _ in range(ZONES // PASSES_MAX):
        lone.ms += late_ms
        lone.master.tick(lone.now)

    assert len(turns.looked) == ZONES
    turns.check()


def test_many_messages_of_one_turn_are_decided_once_and_before_anything_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One read from a link brings the reports of all partitions of many zones."""
    lone = LoneMaster(*zones()[:2])
    first, second = sorted(lone.master.zones)
    looked: list[str] = []
    decide = ZoneMaster.decide

    def noted(zone: ZoneMaster, now: Now) -> None:
        looked.append(zone.record.uid)
        decide(zone, now)

    monkeypatch.setattr(ZoneMaster, "decide", noted)
    for _ in range(100):
        lone.master.receive("a", TransferProgress(second, 0, 1, 2), lone.now)
    assert looked == []
    lone.master.take_outputs()
    assert looked == [second]

    looked.clear()
    for _ in range(100):
        lone.master.receive("a", TransferProgress(second, 0, 1, 2), lone.now)
        lone.master.receive("a", Inventory("", ()), lone.now)
    lone.master.take_outputs()
    assert looked == [first, second]

    looked.clear()
    lone.master.receive("a", TransferProgress(first, 0, 1, 2), lone.now)
    lone.master.tick(lone.now)
    lone.master.take_outputs()
    assert sorted(looked) == [first, second]
