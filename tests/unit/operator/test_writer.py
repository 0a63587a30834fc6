"""The writer takes what others have stored in the order in which it was stored."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import DamagedRow, Key, NodeKey, Value
from quorate_loopback.slow_metastore import SlowMetastore
from quorate_loopback.waiting import until
from quorate_operator.mastership.refused_writes import Refusal
from quorate_operator.mastership.writer import RETRY_S, Writer
from quorate_operator.process.metrics import Metrics

KEY, OTHER = NodeKey("agent-1"), NodeKey("agent-2")
RECORD = NodeRecord("agent-1", "s", 1, "10.0.0.1", 7100, "10.0.0.1")


class _Leader:
    """Notes what it is told."""

    cluster = "main"

    def __init__(self) -> None:
        self.told: list[Value | None] = []
        self.wrote: list[Value | None] = []

    def may_act(self) -> bool:
        return True

    def written(self, key: Key, value: Value | None) -> None:
        self.wrote.append(value)

    def reloaded(self, key: Key, value: Value | None, damaged: Sequence[DamagedRow] = ()) -> None:
        self.told.append(value)

    def blocked(self, refusal: Refusal | None) -> None:
        raise AssertionError("no write fails here")

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


@asynccontextmanager
async def _looking(writer: Writer) -> AsyncIterator[None]:
    """Meanwhile what was put off is looked at."""
    later = asyncio.create_task(writer.look_at_unread())
    yield
    later.cancel()
    await asyncio.gather(later, return_exceptions=True)


async def test_a_change_seen_while_an_own_write_is_under_way_is_read_after_it() -> None:
    world = _World()
    metastore, writer, leader = world.metastore, world.writer, world.leader
    await writer.load()
    metastore.slow_writes = True
    writes = [asyncio.create_task(writer.write(key, RECORD)) for key in (KEY, OTHER)]
    await metastore.asked(2)
    metastore.slow_writes = False
    await writer.look_at(OTHER, metastore.stored[OTHER].revision)
    await writer.look_at(KEY, metastore.stored[KEY].revision)
    world.revision = metastore.stored[KEY].revision
    await world.store(world.second)
    await writer.look_at(KEY, world.revision)
    metastore.answer_all()
    await asyncio.gather(*writes)

    async with _looking(writer):
        await until(lambda: leader.told, "the change taken")

    assert leader.told == [world.second]
    assert leader.wrote == [RECORD, RECORD]
    assert metastore.keys_read == [KEY], "a write that is seen before its answer is no change"


async def test_an_own_write_that_is_seen_during_the_next_one_is_no_change() -> None:
    world = _World()
    metastore, writer, leader = world.metastore, world.writer, world.leader
    await writer.load()
    await writer.write(KEY, RECORD)
    known = metastore.stored[KEY].revision
    metastore.slow_writes = True
    again = asyncio.create_task(writer.write(KEY, world.first))
    await metastore.asked(1)
    await writer.look_at(KEY, known)
    metastore.answer_all()
    await again

    assert writer._unread == {}, "nothing is to be read"
    assert leader.wrote == [RECORD, world.first]


async def test_a_deletion_seen_while_an_own_write_creates_the_object_is_read_after_it() -> None:
    world = _World()
    metastore, writer, leader = world.metastore, world.writer, world.leader
    await writer.load()
    metastore.slow_writes = True
    creating = asyncio.create_task(writer.write(KEY, RECORD))
    await metastore.asked(1)
    metastore.slow_writes = False
    revision = metastore.stored[KEY].revision
    await writer.look_at(KEY, revision)
    await metastore.write(KEY, None, revision)
    await writer.look_at(KEY, None)
    metastore.answer_all()
    await creating

    async with _looking(writer):
        await until(lambda: leader.told, "the deletion taken")

    assert leader.told == [None]


async def test_what_is_put_off_while_others_are_read_does_not_lengthen_the_next_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a read that failed does."""
    world = _World()
    writer = world.writer
    await writer.load()
    waits: list[float] = []
    passes = 3

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > passes:
            raise asyncio.CancelledError

    async def looked(key: Key, revision: str | None) -> bool:
        writer._look_later(key, revision)  # as after an own write that ends meanwhile
        return len(waits) != 2

    monkeypatch.setattr(writer, "look_at", looked)
    writer._look_later(KEY, "7")
    monkeypatch.setattr(asyncio, "sleep", noted)
    with pytest.raises(asyncio.CancelledError):
        await writer.look_at_unread()

    assert waits == [RETRY_S, RETRY_S, 2 * RETRY_S, RETRY_S]
