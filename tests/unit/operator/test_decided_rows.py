"""Rows that a person decided are told as stored once the metastore holds exactly these."""

import asyncio

import msgspec
import pytest

from quorate.protocol.metastore import Key, OutcomeUnknown, Revision, ShardKey, Value
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate_loopback.runner_world import ZONE, World, is_available
from quorate_loopback.waiting import until
from quorate_operator.mastership import awaited_writes
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore


class Slow(MemoryMetastore):
    """Answers writes of rows while `answers` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        if isinstance(key, ShardKey):
            await self.answers.wait()
        return await super().write(key, value, expected)


async def restarted(world: World, metastore: MemoryMetastore) -> tuple[Runner, RecoveryAnswer]:
    """A person has the copy of agent-1 of partition 5 restarted."""
    runner = await world.lead(metastore=metastore)
    await until(lambda: is_available(runner), "available")
    assert runner.master is not None
    version = runner.master.zones[ZONE.uid].parts[5].row.version
    asked = Recovery(RecoveryAction.RESTART, {5: version}, "agent-1", dry_run=False)
    answer = runner.recover(ZONE.uid, asked)
    assert answer is not None
    assert answer.refusals == ()
    return runner, answer


async def test_they_are_told_as_stored_when_the_metastore_has_them(world: World) -> None:
    runner, answer = await restarted(world, MemoryMetastore())

    await runner.rows_stored(ZONE.uid, answer)

    stored = world.stored()[ShardKey(ZONE.uid, 0)]
    assert isinstance(stored, tuple)
    assert answer.partitions[0].row in stored


async def test_it_is_unknown_while_the_write_is_not_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_writes, "WRITTEN_S", 0.1)
    metastore = Slow()
    runner, answer = await restarted(world, metastore)
    metastore.answers.clear()

    with pytest.raises(OutcomeUnknown, match="did not confirm the rows of partitions 5 within"):
        await runner.rows_stored(ZONE.uid, answer)


async def test_another_row_of_that_version_is_not_taken_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_writes, "WRITTEN_S", 0.5)
    metastore = Slow()
    runner, answer = await restarted(world, metastore)
    metastore.answers.clear()
    decided = answer.partitions[0].row
    assert decided is not None
    key = ShardKey(ZONE.uid, 0)
    before = await metastore.read(key)
    assert before is not None
    assert isinstance(before.value, tuple)
    other = msgspec.structs.replace(decided, replicas=(decided.replicas[0], None, None))
    waiting = asyncio.ensure_future(runner.rows_stored(ZONE.uid, answer))
    await asyncio.sleep(0)

    rows = (*before.value[:5], other, *before.value[6:])
    await MemoryMetastore.write(metastore, key, rows, before.revision)  # another writes it
    runner.reloaded(key, rows)

    with pytest.raises(OutcomeUnknown, match="did not confirm the rows"):
        await waiting


async def test_it_is_unknown_when_the_runner_ends_first(world: World) -> None:
    metastore = Slow()
    runner, answer = await restarted(world, metastore)
    metastore.answers.clear()
    waiting = asyncio.ensure_future(runner.rows_stored(ZONE.uid, answer))
    await asyncio.sleep(0)

    await runner.stop()

    with pytest.raises(OutcomeUnknown, match="the rows of partitions 5: no longer led here"):
        await waiting
