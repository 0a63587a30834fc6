"""Who asks for a removal or a drain is told when it is written, and never what is untrue."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.metastore import (
    Conflict,
    Key,
    NodeKey,
    OutcomeUnknown,
    Revision,
    Value,
)
from quorate_loopback.runner_world import World, is_available
from quorate_loopback.waiting import until
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore

Ask = Callable[[Runner], Awaitable[str]]
IsDone = Callable[[World], bool]


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
    """agent-4 is registered and gone; no row names it.  Its address is still declared."""
    record = NodeRecord("agent-4", "store-4", 1, "127.0.0.1", 9, "127.0.0.1", left_since_ms=1)
    await metastore.write(NodeKey("agent-4"), record, None)
    runner = await world.lead(metastore=metastore)
    runner.set_addresses([*(agent.address for agent in world.agents.values()), "127.0.0.1:9"])
    await until(lambda: is_available(runner), "available")
    return runner


async def remove(runner: Runner) -> str:
    return await runner.forget_node("agent-4")


async def drain(runner: Runner) -> str:
    return await runner.drain("agent-4", True)


def is_removed(world: World) -> bool:
    return NodeKey("agent-4") not in world.stored()


def is_draining(world: World) -> bool:
    record = world.stored()[NodeKey("agent-4")]
    assert isinstance(record, NodeRecord)
    return record.draining


EITHER = pytest.mark.parametrize(
    ("ask", "is_done"), [(remove, is_removed), (drain, is_draining)], ids=["removal", "drain"]
)


@EITHER
async def test_what_meets_a_conflict_is_done_when_it_is_answered(
    world: World, ask: Ask, is_done: IsDone
) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.conflicts = 2

    assert await ask(runner) == ""

    assert is_done(world)


@EITHER
async def test_the_answer_waits_for_the_write(
    world: World, ask: Ask, is_done: IsDone, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.answers.clear()
    monkeypatch.setattr("quorate_operator.mastership.awaited_writes.WRITTEN_S", 0.2)

    with pytest.raises(OutcomeUnknown, match=r"agent-4: the metastore .* repeat the command if it"):
        await ask(runner)

    metastore.answers.set()
    assert await ask(runner) == ""
    assert is_done(world)


async def test_who_asks_for_a_drain_is_told_when_another_took_it_back(world: World) -> None:
    runner = await with_a_node_that_left(world, Contested())

    first, second = await asyncio.gather(
        runner.drain("agent-4", True), runner.drain("agent-4", False)
    )

    assert "agent-4: another command has undone it meanwhile" in first
    assert second == ""
    assert not is_draining(world)


async def test_who_asks_for_a_drain_is_told_when_the_node_is_removed_first(world: World) -> None:
    runner = await with_a_node_that_left(world, Contested())

    first, second = await asyncio.gather(
        runner.drain("agent-4", True), runner.forget_node("agent-4")
    )

    assert "agent-4: its registration was removed meanwhile" in first
    assert second == ""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that nobody gives is given up sooner."""
    monkeypatch.setattr("quorate_operator.mastership.awaited_writes.WRITTEN_S", 2.0)


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
    removal = await removal_under_way(runner, metastore)
    hello = Hello(FORMAT_VERSION, "agent", "main", "agent-4", "store-4", 2, 0, "h", 9, "h")
    runner.step(lambda master: master.agent_connected(hello, runner._clock.now()))
    await until(lambda: is_wanted(runner, "agent-4"), "registration")
    drained = asyncio.create_task(runner.drain("agent-4", True))
    await asyncio.sleep(0)  # it is asked for
    metastore.answers.set()

    assert await removal == ""
    assert await drained == ""
    assert is_draining(world)


async def removal_under_way(runner: Runner, metastore: Contested) -> asyncio.Task[str]:
    """Asked for, and not answered by the metastore."""
    metastore.answers.clear()
    removal = asyncio.create_task(runner.forget_node("agent-4"))
    await until(lambda: not is_wanted(runner, "agent-4"), "removal")
    return removal


def is_wanted(runner: Runner, node: str) -> bool:
    return runner.registration(node) is not None


async def test_who_waits_is_told_when_the_master_ends(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    removal = await removal_under_way(runner, metastore)

    await runner.stop()

    with pytest.raises(OutcomeUnknown, match="agent-4: no longer led here, stopped"):
        await asyncio.wait_for(removal, 1.0)
