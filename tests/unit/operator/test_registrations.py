"""Who asks for a removal or a drain is told when it is written, and never what is untrue."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.messages import FORMAT_VERSION, Hello
from quorate.protocol.metastore import Conflict, Key, NodeKey, OutcomeUnknown, Revision, Value
from quorate_loopback.runner_world import World, is_available, until
from quorate_operator.metastore_memory import MemoryMetastore
from quorate_operator.runner import Runner


class Contested(MemoryMetastore):
    """The next removals and drains meet a conflict, or are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 0
        # What another makes of the record just before; None: a conflict without a reason.
        self.other: Callable[[NodeRecord], NodeRecord | None] | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        draining = isinstance(value, NodeRecord) and value.draining
        if isinstance(key, NodeKey) and (value is None or draining):
            await self.answers.wait()
            if self.conflicts:
                self.conflicts -= 1
                present = await self.read(key)
                if self.other is not None and present is not None:
                    assert isinstance(present.value, NodeRecord)
                    await super().write(key, self.other(present.value), present.revision)
                raise Conflict(f"{key}: another wrote it")
        return await super().write(key, value, expected)


async def with_a_node_that_left(world: World, metastore: Contested) -> Runner:
    """agent-4 is registered and gone; no row names it."""
    record = NodeRecord("agent-4", "store-4", 1, "127.0.0.1", 9, "127.0.0.1", left_since_ms=1)
    await metastore.write(NodeKey("agent-4"), record, None)
    runner = await world.lead(metastore=metastore)
    await until(lambda: is_available(runner), "available")
    return runner


async def test_a_removal_that_meets_a_conflict_is_done_when_it_is_answered(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.conflicts = 2

    assert await runner.forget_node("agent-4") == ""

    assert NodeKey("agent-4") not in world.stored()


async def test_the_answer_to_a_removal_waits_for_the_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.answers.clear()
    monkeypatch.setattr("quorate_operator.registrations.WRITTEN_S", 0.2)

    with pytest.raises(OutcomeUnknown, match="agent-4: the metastore did not confirm"):
        await runner.forget_node("agent-4")

    metastore.answers.set()
    assert await runner.forget_node("agent-4") == ""
    assert NodeKey("agent-4") not in world.stored()


async def test_a_drain_is_answered_when_it_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.answers.clear()
    monkeypatch.setattr("quorate_operator.registrations.WRITTEN_S", 0.2)

    with pytest.raises(OutcomeUnknown, match=r"agent-4: .* ask again if it is not as you asked"):
        await runner.drain("agent-4", True)

    metastore.answers.set()
    assert await runner.drain("agent-4", True) == ""
    assert is_draining(world, "agent-4")


async def test_a_drain_that_meets_a_conflict_is_written_when_it_is_answered(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.conflicts = 2

    assert await runner.drain("agent-4", True) == ""

    assert is_draining(world, "agent-4")


async def test_who_asks_for_a_drain_is_told_when_another_took_it_back(world: World) -> None:
    runner = await with_a_node_that_left(world, Contested())

    first, second = await asyncio.gather(
        runner.drain("agent-4", True), runner.drain("agent-4", False)
    )

    assert "agent-4: another command asked for the opposite meanwhile" in first
    assert second == ""
    assert not is_draining(world, "agent-4")


async def test_who_asks_for_a_drain_is_told_when_the_node_is_removed_first(world: World) -> None:
    runner = await with_a_node_that_left(world, Contested())

    first, second = await asyncio.gather(
        runner.drain("agent-4", True), runner.forget_node("agent-4")
    )

    assert "agent-4: its registration was removed meanwhile" in first
    assert second == ""


def is_draining(world: World, node: str) -> bool:
    record = world.stored()[NodeKey(node)]
    assert isinstance(record, NodeRecord)
    return record.draining


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that nobody gives is given up sooner."""
    monkeypatch.setattr("quorate_operator.registrations.WRITTEN_S", 2.0)


@pytest.mark.usefixtures("soon")
async def test_a_drain_that_another_has_written_meanwhile_is_answered(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.conflicts = 1
    metastore.other = lambda record: msgspec.structs.replace(record, draining=True, left_since_ms=2)

    assert await runner.drain("agent-4", True) == ""


@pytest.mark.usefixtures("soon")
async def test_a_drain_of_a_node_that_another_has_removed_meanwhile_is_refused(
    world: World,
) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.conflicts = 1
    metastore.other = lambda record: None

    said = await runner.drain("agent-4", True)

    assert "agent-4: its registration was removed meanwhile" in said


async def test_a_drain_of_a_node_that_came_back_outlives_its_removal(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.answers.clear()
    removal = asyncio.create_task(runner.forget_node("agent-4"))
    await until(lambda: not is_wanted(runner, "agent-4"), "removal")
    hello = Hello(FORMAT_VERSION, "agent", "main", "agent-4", "store-4", 2, 0, "h", 9, "h")
    runner._step(lambda master: master.agent_connected(hello, runner._clock.now()))
    await until(lambda: is_wanted(runner, "agent-4"), "registration")
    drain = asyncio.create_task(runner.drain("agent-4", True))
    await asyncio.sleep(0)  # it is asked for
    metastore.answers.set()

    assert await removal == ""
    assert await drain == ""
    assert is_draining(world, "agent-4")


def is_wanted(runner: Runner, node: str) -> bool:
    return runner._registration(node) is not None


async def test_who_waits_is_told_when_the_master_ends(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.answers.clear()
    removal = asyncio.create_task(runner.forget_node("agent-4"))
    await until(lambda: not is_wanted(runner, "agent-4"), "removal")

    await runner.stop()

    with pytest.raises(OutcomeUnknown, match="agent-4: no longer led here, stopped"):
        await asyncio.wait_for(removal, 1.0)
