"""A zone's settings that are changed while it is open count from then on."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.facts.zone import SyncWrites
from quorate.protocol.storage import Row
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones import runtime as zone_runtime
from quorate_agent.zones.runtime import Engine, ZoneRuntime
from quorate_loopback.waiting import until


class Endpoint:
    """Of clients there are none."""

    async def close(self) -> None:
        """Close nothing."""


def runtime_of(record: Any, storage: Engine) -> ZoneRuntime:
    def no_room_told(_: object) -> None:
        pass

    replicas = SimpleNamespace(
        record=record,
        uid="uid",
        me=SimpleNamespace(node="agent-1"),
        why_full="",
        set_short_of_room=no_room_told,
    )

    def no_turn(*_: object) -> None:
        raise AssertionError("no turn ends here")

    def fails(reason: str) -> None:
        raise AssertionError(reason)

    return ZoneRuntime(
        cast("Any", replicas),
        storage,
        cast("Any", Endpoint()),
        no_turn,
        cast("Callable[[], None]", no_turn),
        fails,
        ThreadPoolExecutor(2),
    )


def write(storage: RocksStorage, number: int) -> None:
    storage.space(0, 0).put(b"%d" % number, Row(number, 1, 0, b"value"))
    storage.commit()


@pytest.mark.parametrize("first", [*SyncWrites])
def test_writes_are_synced_by_interval_as_soon_as_the_zone_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: SyncWrites
) -> None:
    monkeypatch.setattr(zone_runtime, "SYNC_INTERVAL_S", 0.01)

    async def run() -> None:
        storage = RocksStorage(tmp_path / "zone")
        record = SimpleNamespace(persistent=True, sync_writes=first, name="z")
        runtime = runtime_of(record, storage)
        database = storage.database
        for number, setting in enumerate(
            [SyncWrites.INTERVAL, SyncWrites.ALWAYS, SyncWrites.INTERVAL]
        ):
            record.sync_writes = setting
            write(storage, number + 1)
            if setting is SyncWrites.INTERVAL:
                await until(lambda: database.synced_sequence == database.sequence, "sync")
        await runtime.close()

    asyncio.run(run())


@pytest.mark.parametrize("has_synced", [True, False], ids=["later", "in the first interval"])
def test_what_the_interval_has_not_synced_is_synced_although_the_zone_changes_to_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_synced: bool
) -> None:
    monkeypatch.setattr(zone_runtime, "SYNC_INTERVAL_S", 0.1)

    async def run() -> None:
        storage = RocksStorage(tmp_path / "zone")
        record = SimpleNamespace(persistent=True, sync_writes=SyncWrites.INTERVAL, name="z")
        runtime = runtime_of(record, storage)
        database = storage.database
        if has_synced:
            write(storage, 1)
            await until(lambda: database.synced_sequence == database.sequence, "sync")
        write(storage, 2)
        record.sync_writes = SyncWrites.ALWAYS
        await until(lambda: database.synced_sequence == database.sequence, "the last sync")
        await runtime.close()

    asyncio.run(run())


def test_a_changed_max_memory_is_obeyed() -> None:
    async def run() -> None:
        storage = MemoryStorage(1000)
        record = SimpleNamespace(persistent=False, max_memory_bytes=1000, name="z")
        runtime = runtime_of(record, storage)
        runtime.look(1.0)
        assert storage.room() == 1000
        record.max_memory_bytes = 5000
        runtime.look(2.0)
        assert storage.room() == 5000
        await runtime.close()

    asyncio.run(run())
