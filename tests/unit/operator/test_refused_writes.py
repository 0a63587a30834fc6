"""A metastore that refuses writes: attempts become rare, users are told once, all goes on after."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.metastore import (
    Conflict,
    Key,
    MetastoreUnavailable,
    NodeKey,
    OutcomeUnknown,
    ReadRefused,
    Revision,
    ShardKey,
    Stored,
    Value,
    WriteRefused,
    ZoneKey,
)
from quorate_loopback.runner_world import ZONE, World, is_available, state_of
from quorate_loopback.waiting import until
from quorate_operator.mastership import refused_writes
from quorate_operator.mastership.refused_writes import RETRY_S, RefusedWrites
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore

SENTENCE = "zones is forbidden: User cannot update"
FORBIDDEN = WriteRefused("Forbidden", SENTENCE)
KEY = ZoneKey("uid-1")


class Guarded(MemoryMetastore):
    """Writes of some keys raise what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: Callable[[Key], Exception | None] = lambda key: None
        self.attempted: dict[Key, list[float]] = {}
        """When a write of this key was refused, in seconds of the loop."""
        self.reading: Exception | None = None
        self.loading: Exception | None = None
        self.loads = 0

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        error = self.refusal(key)
        if error is not None:
            self.attempted.setdefault(key, []).append(asyncio.get_running_loop().time())
            raise error
        return await super().write(key, value, expected)

    async def read(self, key: Key) -> Stored | None:
        if self.reading is not None:
            raise self.reading
        return await super().read(key)

    async def load(self) -> dict[Key, Stored]:
        self.loads += 1
        if self.loading is not None:
            raise self.loading
        return await super().load()


def serves(runner: Runner) -> bool:
    """Whether clients are served, and nothing waits to be written."""
    zones = runner.status().zones
    return bool(zones) and zones[0].unavailable == 0 and runner.refusal() is None


async def led(world: World, metastore: Guarded) -> list[Event]:
    """A runner that leads; what it tells."""
    told: list[Event] = []
    runner = await world.lead(metastore=metastore, on_event=told.append)
    await until(lambda: is_available(runner), "available")
    return told


def said(told: list[Event], reason: Reason) -> list[Event]:
    return [event for event in told if event.reason is reason]


async def test_refused_writes_become_rare_and_are_told_once(world: World) -> None:
    metastore = Guarded()
    told = await led(world, metastore)
    runner = world.runners[0]
    metastore.refusal = lambda key: FORBIDDEN

    await world.agents["agent-1"].die()
    await until(lambda: max(map(len, metastore.attempted.values()), default=0) == 4, "attempts")

    for times in metastore.attempted.values():
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert all(pause >= RETRY_S * 2**index for index, pause in enumerate(pauses)), pauses
    assert runner.is_leading
    refusal = runner.refusal("uid-1")
    assert refusal == ("Forbidden", SENTENCE)
    assert runner.not_ready == f"blocked: {SENTENCE}"
    assert not serves(runner)
    [event] = said(told, Reason.WRITES_REFUSED)
    assert (event.kind, event.message) == (
        "Warning",
        f"the metastore refuses writes: {SENTENCE}",
    )


async def test_all_goes_on_when_the_first_write_is_taken_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_writes, "RETRY_S", 1.0)
    metastore = Guarded()
    told = await led(world, metastore)
    runner = world.runners[0]
    metastore.refusal = lambda key: FORBIDDEN
    await world.agents["agent-1"].die()
    # The registration and both shards wait, and perhaps the note that the zone was placed: the
    # first one to be tried calls the others.
    waiting = {NodeKey("agent-1"), *(ShardKey(ZONE.uid, shard) for shard in (0, 1))}
    await until(lambda: waiting <= metastore.attempted.keys(), "all are refused")

    metastore.refusal = lambda key: None

    await until(lambda: serves(runner), "others have taken over")
    assert runner.refusal() is None
    assert runner.not_ready == ""
    assert len(said(told, Reason.WRITES_TAKEN)) == 1
    assert state_of(runner, "agent-1") == "Offline"


async def test_what_is_decided_while_writes_are_refused_is_what_is_written(world: World) -> None:
    metastore = Guarded()
    await led(world, metastore)
    runner = world.runners[0]
    metastore.refusal = lambda key: FORBIDDEN if isinstance(key, ShardKey) else None
    await world.agents["agent-1"].die()
    await until(lambda: runner.refusal() is not None, "refused")
    port = world.agents["agent-1"].hello.peer_port
    await world.add_agent("agent-1", port=port)  # it is back before any row was written
    await until(lambda: state_of(runner, "agent-1") == "Online", "it is back")

    metastore.refusal = lambda key: None

    await until(lambda: serves(runner), "served again")
    assert world.published_early == []


async def test_a_refusal_of_one_zone_is_not_said_of_another(world: World) -> None:
    metastore = Guarded()
    await led(world, metastore)
    runner = world.runners[0]
    metastore.refusal = lambda key: FORBIDDEN if getattr(key, "uid", "") == "uid-2" else None

    runner.set_zone(ZoneRecord("uid-2", "second", 4, 3))
    await until(lambda: runner.refusal("uid-2") is not None, "refused")

    assert runner.refusal("uid-1") is None
    metastore.refusal = lambda key: FORBIDDEN if isinstance(key, NodeKey) else None
    await world.agents["agent-1"].die()
    await until(lambda: runner.refusal("uid-1") is not None, "registrations are every zone's")


async def test_the_master_term_is_counted_once_however_often_reading_is_refused(
    world: World,
) -> None:
    metastore = Guarded()
    metastore.loading = MetastoreUnavailable("429: too many requests")
    runner = await world.lead(metastore=metastore)
    await until(lambda: "too many requests" in runner.problem, "says so")
    await until(lambda: metastore.loads >= 3, "two more attempts")

    metastore.loading = None

    await until(lambda: is_available(runner), "available")
    assert runner.status().master_term == 1


async def test_a_write_that_cannot_be_read_back_is_told_too(world: World) -> None:
    metastore = Guarded()
    told = await led(world, metastore)
    runner = world.runners[0]
    metastore.refusal = lambda key: OutcomeUnknown("the answer was lost")
    metastore.reading = ReadRefused("partitiontables is forbidden")

    await world.agents["agent-1"].die()

    await until(lambda: runner.refusal() is not None, "says so")
    assert runner.refusal() == ("ReadRefused", "partitiontables is forbidden")
    metastore.refusal = lambda key: None
    metastore.reading = None
    await until(lambda: serves(runner), "served again")
    assert len(said(told, Reason.WRITES_REFUSED)) == 1


def waits(error: Exception, count: int) -> list[float]:
    refused = RefusedWrites()
    return [refused.failed(KEY, error) for _ in range(count)]


def test_how_long_each_kind_waits() -> None:
    assert waits(FORBIDDEN, 9) == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15]
    assert waits(Conflict("another wrote"), 6) == [0, 0.2, 0.4, 0.8, 1.6, 2]
    assert waits(OutcomeUnknown("lost"), 3) == [0, 0.2, 0.4]
    assert waits(ReadRefused("403"), 7) == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8]
    assert waits(MetastoreUnavailable("away"), 6) == [0, 0.2, 0.4, 0.8, 1.6, 2]
    assert waits(WriteRefused("Throttled", "429", 5.0), 2) == [5, 5]
    assert waits(WriteRefused("Throttled", "429", 0.0), 6) == [0.2, 0.4, 0.8, 1.6, 2, 2]


def test_what_usually_passes_is_told_after_a_few_attempts_only() -> None:
    refused = RefusedWrites()
    throttled = WriteRefused("Throttled", "429: too many requests", 0.0)
    for _ in range(2):
        refused.failed(KEY, throttled)
    assert refused.blocked() is None

    refused.failed(KEY, throttled)

    assert refused.blocked() == ("Throttled", "429: too many requests")
    refused.taken(KEY)
    assert refused.blocked() is None
    assert refused.failed(KEY, throttled) == 0.2  # it begins anew


async def test_who_was_asked_to_wait_is_not_called_by_another_write() -> None:
    refused = RefusedWrites()
    other = NodeKey("agent-1")
    refused.failed(other, FORBIDDEN)
    throttled = WriteRefused("Throttled", "429", 0.3)
    began = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(refused.wait(0.3, throttled))
    called = asyncio.create_task(refused.wait(60, FORBIDDEN))
    await asyncio.sleep(0)

    refused.taken(other)

    await asyncio.wait_for(called, 5)
    await waiting
    assert asyncio.get_running_loop().time() - began >= 0.3
