"""The writer takes what others have stored in the order in which it was stored."""

import asyncio
from collections.abc import Sequence

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import DamagedRow, Key, NodeKey, Value
from quorate_loopback.slow_metastore import SlowMetastore
from quorate_operator.mastership.refused_writes import Refusal
from quorate_operator.mastership.writer import Writer
from quorate_operator.process.metrics import Metrics

KEY = NodeKey("agent-1")
RECORD = NodeRecord("agent-1", "s", 1, "10.0.0.1", 7100, "10.0.0.1")


class _Leader:
    """Notes what it is told."""

    cluster = "main"

    def __init__(self) -> None:
        self.told: list[Value | None] = []

    def may_act(self) -> bool:
        return True

    def written(self, key: Key, value: Value | None) -> None:
        raise AssertionError("nothing is written here")

    def reloaded(self, key: Key, value: Value | None, damaged: Sequence[DamagedRow] = ()) -> None:
        self.told.append(value)

    def blocked(self, refusal: Refusal | None) -> None:
        raise AssertionError("nothing is written here")

    def stop_for(self, error: InvariantError) -> None:
        raise error


class _World:
    """A writer that has read everything; then another process stores `first`, later `second`."""

    def __init__(self) -> None:
        self.leader = _Leader()
        self.metastore = SlowMetastore()
        self.writer = Writer(self.leader, self.metastore, Metrics())
        self.first = msgspec.structs.replace(RECORD, incarnation=2)
        self.second = msgspec.structs.replace(RECORD, incarnation=3)
        self.revision = ""

    async def begin(self) -> None:
        await self.store(RECORD)
        await self.writer.load()
        await self.store(self.first)
        self.metastore.is_slow = True

    async def store(self, value: NodeRecord) -> None:
        self.revision = await self.metastore.write(KEY, value, self.revision or None)


async def _turns() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_change_seen_while_everything_is_read_is_not_taken_back() -> None:
    world = _World()
    await world.begin()
    everything = asyncio.create_task(world.writer.look_again())
    await world.metastore.asked(1)

    await world.store(world.second)
    one = asyncio.create_task(world.writer.look_at(KEY, world.revision))
    await _turns()
    world.metastore.answer_all()
    await asyncio.gather(everything, one)

    assert world.leader.told == [world.first, world.second]


async def test_a_change_read_while_everything_is_read_is_not_taken_back() -> None:
    world = _World()
    await world.begin()
    one = asyncio.create_task(world.writer.look_at(KEY, world.revision))
    await world.metastore.asked(1)

    await world.store(world.second)
    everything = asyncio.create_task(world.writer.look_again())
    await _turns()
    world.metastore.answer_all()
    await asyncio.gather(one, everything)

    assert world.leader.told == [world.first, world.second]
