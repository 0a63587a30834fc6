"""Keys of many partitions that expire at one time are deleted in steps, over all partitions."""

import pytest

from quorate.protocol.agent import upkeep
from quorate.protocol.agent.next_look import IDLE_LOOK_MS
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import StorageFull
from quorate_lone_agent.core import PARTITIONS, TICK_MS, LoneAgent

EACH = 7
STEP = 5
LOOKS = 20


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "EXPIRE_PER_TICK", STEP)
    monkeypatch.setattr(upkeep, "EXPIRIES_LOOKED_AT", LOOKS)


def _due_soon(monkeypatch: pytest.MonkeyPatch) -> tuple[LoneAgent, Replicas, int]:
    """Return an agent, its zone, and the time (wall ms) in ten ticks."""
    agent = LoneAgent(1, monkeypatch)
    return agent, agent.core.zones["zone-0"], agent.now.wall_ms + 10 * TICK_MS


def _write(zone: Replicas, role: Primary, expires_at: int, *names: str) -> None:
    for name in names:
        role.write(((name.encode(), b"value", expires_at),))
    zone.commands_wrote(role)


def _left(role: Primary) -> int:
    """Return how many keys are not deleted."""
    rows = role.copy.space.scan(None, 1000, 1 << 20)
    return len([key for key, row in rows if row.value is not None])


def test_few_keys_expire_with_each_tick_over_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, zone, due = _due_soon(monkeypatch)
    for role in zone.roles.values():
        _write(zone, role, due, *map(str, range(EACH)))
    agent.pass_time(9 * TICK_MS)
    left = [sum(map(_left, zone.roles.values()))]
    assert left == [EACH * PARTITIONS]
    while left[-1] and agent.ms < 10 * IDLE_LOOK_MS:
        agent.pass_time(TICK_MS)
        left.append(sum(map(_left, zone.roles.values())))

    assert left == [28, 23, 18, 13, 8, 3, 0]


def test_times_of_keys_that_were_written_again_count_over_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, zone, due = _due_soon(monkeypatch)
    for role in zone.roles.values():
        for number in range(2 * LOOKS):
            _write(zone, role, due + number - 2 * LOOKS, "k")
    noted = 2 * LOOKS * PARTITIONS
    agent.pass_time(9 * TICK_MS)
    assert sum(len(role.copy.expiring.heap) for role in zone.roles.values()) == noted

    agent.pass_time(TICK_MS)

    assert sum(len(role.copy.expiring.heap) for role in zone.roles.values()) == noted - LOOKS


def test_a_partition_where_much_expires_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, zone, due = _due_soon(monkeypatch)
    for partition, role in zone.roles.items():
        _write(zone, role, due, *map(str, range(20 * STEP if partition == 0 else 1)))
    first, *others = [zone.roles[partition] for partition in range(PARTITIONS)]
    agent.pass_time(9 * TICK_MS)

    agent.pass_time(3 * TICK_MS)

    assert sum(map(_left, others)) == 0
    assert _left(first) > 10 * STEP


def test_where_more_keys_that_expire_are_written_more_expire_with_each_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = LoneAgent(1, monkeypatch)
    zone, role = agent.core.zones["zone-0"], agent.role()
    rate, ticks, most = 4 * STEP, 4, 0
    for at in range(20 * ticks):
        due = agent.now.wall_ms + ticks * TICK_MS
        _write(zone, role, due, *[f"{at}-{number}" for number in range(rate)])
        agent.pass_time(TICK_MS)
        most = max(most, _left(role))

    assert most <= (ticks + 1) * rate


def test_where_a_batch_finds_no_room_no_more_expire_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deleted keys are there again with their time, and nothing came to expire."""
    agent, zone, due = _due_soon(monkeypatch)
    for role in zone.roles.values():
        _write(zone, role, due, *map(str, range(20 * STEP)))
    agent.pass_time(9 * TICK_MS)
    tried: list[int] = []

    def commit(*waiting: object) -> None:
        tried.append(sum(len(role.copy.expired) for role in zone.roles.values()))
        raise StorageFull("no room")

    monkeypatch.setattr(zone.storage, "commit", commit)
    agent.pass_time(10 * TICK_MS)

    assert len(tried) > 5
    assert max(tried) <= STEP
