"""The shell around the master when the metastore fails, contradicts, or holds what it must not."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.protocol.messages.master import CopyReport, Inventory
from quorate.protocol.metastore import (
    Conflict,
    Key,
    MetastoreUnavailable,
    NodeKey,
    OutcomeUnknown,
    Revision,
    Seen,
    ShardKey,
    Stored,
    Value,
    ZoneKey,
)
from quorate_loopback.runner_world import ZONE, World, is_available, state_of
from quorate_loopback.slow_metastore import SlowMetastore
from quorate_loopback.waiting import until
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore


class Faulty(MemoryMetastore):
    """Every write goes wrong once, in one way; every third reading is not possible."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self._seen: dict[Key, int] = {}
        self._reads = 0

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        self._seen[key] = self._seen.get(key, 0) + 1
        await asyncio.sleep(0.01)
        if self._seen[key] % 2 == 0:
            return await super().write(key, value, expected)
        if self.fault == "done":
            await super().write(key, value, expected)
            raise OutcomeUnknown("the answer was lost")
        if self.fault == "not done":
            raise OutcomeUnknown("the request was lost")
        if self.fault == "touched":
            present = await super().read(key)
            if present is not None:
                await super().write(key, present.value, present.revision)
        raise Conflict("another wrote")

    async def read(self, key: Key) -> Stored | None:
        self._reads += 1
        if self._reads % 3 == 1:
            raise MetastoreUnavailable("not now")
        return await super().read(key)


@pytest.mark.parametrize("fault", ["done", "not done", "conflict", "touched"])
async def test_nothing_is_published_before_an_unclear_write_was_read_again(
    world: World, fault: str
) -> None:
    runner = await world.lead(metastore=Faulty(fault))

    await until(lambda: is_available(runner), f"available although writes are {fault}")

    assert {row.version for row in world.stored_rows().values()} == {1}
    assert world.published_early == []


async def test_rows_that_must_not_exist_stop_the_cluster_before_anything_is_written(
    world: World,
) -> None:
    await world.metastore.write(ZoneKey("uid-1"), ZONE, None)
    twice = PartitionRow(0, 1, 1, None, ("agent-1", "agent-1"), ())
    await world.metastore.write(ShardKey("uid-1", 0), (twice,), None)
    before = world.stored()

    runner = await world.lead()

    await until(lambda: "broken invariant" in runner.problem, "stopped")
    assert "partition 0: an owner appears twice" in runner.problem
    assert world.stored() == before
    assert all(agent.told == [] for agent in world.agents.values())


async def test_a_lost_metastore_is_waited_for(world: World) -> None:
    class Late(MemoryMetastore):
        asked = 0

        async def load(self) -> dict[Key, Stored]:
            self.asked += 1
            if self.asked < 3:
                raise MetastoreUnavailable("not yet")
            return await super().load()

    runner = await world.lead(metastore=Late())

    await until(lambda: "cannot be read" in runner.problem, "says so")
    await until(lambda: is_available(runner), "available in the end")


async def test_a_defect_while_starting_is_told_and_not_led_over(world: World) -> None:
    class Broken(MemoryMetastore):
        async def load(self) -> dict[Key, Stored]:
            raise ValueError("not as it was written")

    runner = await world.lead(metastore=Broken())

    await until(lambda: "ValueError: not as it was written" in runner.problem, "says so")
    assert not runner.is_leading


async def test_a_defect_in_a_write_ends_leading(world: World) -> None:
    class Broken(MemoryMetastore):
        async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
            raise ValueError("cannot be encoded")

    runner = await world.lead(metastore=Broken())

    await until(lambda: "ValueError: cannot be encoded" in runner.problem, "says so")
    assert not runner.is_leading


async def test_rows_whose_zone_record_is_gone_are_taken_over_not_overwritten(world: World) -> None:
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    await first.stop()
    rows = world.stored_rows()
    head = await world.metastore.read(ZoneKey("uid-1"))
    assert head is not None
    await world.metastore.write(ZoneKey("uid-1"), None, head.revision)

    second = await world.lead()

    await until(lambda: ZoneKey("uid-1") in world.stored(), "record again")
    await until(lambda: bool(second.status().zones) and is_available(second), "available again")
    assert all(world.stored_rows()[p].version >= rows[p].version for p in rows)
    assert {p: r.term for p, r in world.stored_rows().items()} == {
        p: r.term for p, r in rows.items()
    }


async def test_rows_that_another_stored_are_taken_without_a_conflict(world: World) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    await until(lambda: len(runner.status().zones[0].ports) == 3, "ports")
    key, rows = next((k, v) for k, v in world.stored().items() if isinstance(k, ShardKey))
    assert isinstance(rows, tuple)
    changed = msgspec.structs.replace(rows[0], version=rows[0].version + 7)
    stored = await world.metastore.read(key)
    assert stored is not None
    await world.metastore.write(key, (changed, *rows[1:]), stored.revision)

    await runner.look_again()

    await until(
        lambda: all(agent.rows[0] == changed for agent in world.agents.values()), "published"
    )


async def test_a_change_that_could_not_be_read_when_it_was_seen_is_taken_later(
    world: World,
) -> None:
    class Away(MemoryMetastore):
        """From some time on, some readings fail."""

        failures = 0

        async def read(self, key: Key) -> Stored | None:
            if self.failures:
                self.failures -= 1
                raise MetastoreUnavailable("not now")
            return await super().read(key)

    seen: asyncio.Queue[Seen] = asyncio.Queue()

    async def changes() -> AsyncIterator[Seen]:
        while True:
            yield await seen.get()

    metastore = Away()
    runner = await world.lead(metastore=metastore, changes=changes)
    await until(lambda: is_available(runner), "available")
    await until(lambda: len(runner.status().zones[0].ports) == 3, "ports")
    key = ShardKey("uid-1", 0)
    present = metastore.stored[key]
    assert isinstance(present.value, tuple)
    changed = msgspec.structs.replace(present.value[0], version=present.value[0].version + 7)
    revision = await metastore.write(key, (changed, *present.value[1:]), present.revision)
    metastore.failures = 2

    seen.put_nowait(Seen({key: revision}))

    await until(
        lambda: all(agent.rows[0] == changed for agent in world.agents.values()), "published"
    )


async def overwrite(world: World, key: Key, value: Value) -> None:
    """What a former master wrote arrives late."""
    stored = await world.metastore.read(key)
    assert stored is not None
    await world.metastore.write(key, value, stored.revision)


async def test_a_registration_that_a_former_master_wrote_late_is_written_again(
    world: World,
) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    key = NodeKey("agent-1")
    ours = world.stored()[key]
    assert isinstance(ours, NodeRecord)
    left = msgspec.structs.replace(ours, left_since_ms=1)
    former = msgspec.structs.replace(ours, store="the one before", incarnation=9)

    for late in (left, former):
        await overwrite(world, key, late)
        await runner.look_again()
        await until(lambda: world.stored()[key] == ours, "written again")

    assert state_of(runner, "agent-1") == "Online"


async def test_a_store_that_another_has_followed_is_not_taken_back_from_a_late_write(
    world: World,
) -> None:
    """Also while its node is away: a quorum may be smaller on account of that store."""
    agent = await world.add_agent("agent-4", "old")
    runner = await world.lead()
    await until(lambda: state_of(runner, "agent-4") == "Online", "the old store takes part")
    key = NodeKey("agent-4")
    old = world.stored()[key]
    assert isinstance(old, NodeRecord)
    port = agent.hello.peer_port
    await agent.die()
    agent = await world.add_agent("agent-4", "new", port)
    await until(
        lambda: (
            getattr(world.stored()[key], "store", "") == "new"
            and state_of(runner, "agent-4") == "Online"
        ),
        "the new store takes part",
    )
    await agent.die()
    await until(lambda: state_of(runner, "agent-4") == "Offline", "it is away")

    await overwrite(world, key, old)
    await runner.look_again()

    await until(lambda: getattr(world.stored()[key], "store", "") == "new", "written again")


def is_stored(world: World, runner: Runner) -> bool:
    """Whether the metastore holds the zone's record as the master knows it."""
    assert runner.master is not None
    return world.stored().get(ZoneKey("uid-1")) == runner.master.zones["uid-1"].record


async def test_a_master_that_was_followed_does_not_write_the_record_of_a_deleted_zone_again(
    world: World,
) -> None:
    former = await world.lead()
    await until(lambda: is_available(former), "available")
    await until(lambda: len(former.status().zones[0].ports) == 3, "ports")
    await until(lambda: is_stored(world, former), "ports stored: nothing is left to be written")
    for key in [key for key in world.stored() if not isinstance(key, NodeKey)]:
        stored = await world.metastore.read(key)
        assert stored is not None
        await world.metastore.write(key, None, stored.revision)

    await former.look_again()
    for _ in range(10):  # turns in which it would write
        await asyncio.sleep(0)
    await former.stop()

    assert [key for key in world.stored() if not isinstance(key, NodeKey)] == []


async def test_rows_that_a_former_master_wrote_of_a_deleted_zone_are_deleted(world: World) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    key, rows = next((k, v) for k, v in world.stored().items() if isinstance(k, ShardKey))
    runner.set_zone(msgspec.structs.replace(ZONE, deleting=True))
    await until(lambda: not runner.known_zones() and not world.stored_rows(), "deleted")

    await world.metastore.write(key, rows, None)
    await world.metastore.write(ShardKey("of a zone that nobody declares", 0), rows, None)
    await runner.look_again()

    await until(lambda: key not in world.stored(), "deleted again")
    assert ShardKey("of a zone that nobody declares", 0) in world.stored()


async def test_rows_told_while_everything_is_read_are_judged_by_the_next_reading(
    world: World,
) -> None:
    metastore = SlowMetastore()
    runner = await world.lead(metastore=metastore)
    await until(lambda: is_available(runner), "available")
    metastore.is_slow = True
    looking = asyncio.create_task(runner.look_again())
    await metastore.asked(1)

    # The master before stores a row late, and tells it to an agent.
    key = ShardKey("uid-1", 0)
    present = metastore.stored[key]
    assert isinstance(present.value, tuple)
    newer = msgspec.structs.replace(present.value[7], version=present.value[7].version + 1)
    rows = (*present.value[:7], newer, *present.value[8:])
    await metastore.write(key, rows, present.revision)
    copy = CopyReport(7, newer.version, None, "", newer.term, 0, 0, True)
    for link in world.agents["agent-2"].links:
        link.send(Inventory("uid-1", (copy,), last=False))
    await until(lambda: runner.master is not None and runner.master.has_doubts, "it was told")
    metastore.answer_all()
    await looking
    await runner.look_again()  # one that has begun after all that was told
    await until(lambda: all(agent.rows[7] == newer for agent in world.agents.values()), "published")

    assert runner.is_leading
