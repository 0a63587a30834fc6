"""In a zone that is synced by interval a turn is told as durable at once, unless it says something
that a power loss must not take back."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from quorate.facts.zone import StorageKind, SyncWrites, ZoneRecord
from quorate.protocol.agent.turn import Turn
from quorate.protocol.messages.master import Members
from quorate.protocol.storage import Row
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.runtime import ZoneRuntime
from quorate_loopback.waiting import until

WRITES = Turn([], [], [], [], [], {}, True)
SAYS = [("b", Members(1, (), 1))]
RECORD = ZoneRecord("uid", "z", 1, 1, StorageKind.PERSISTENT, sync_writes=SyncWrites.INTERVAL)


class Endpoint:
    """Of clients there are none."""

    async def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize(
    ("record", "turn", "at_once"),
    [
        (RECORD, WRITES, True),
        (msgspec.structs.replace(RECORD, sync_writes=SyncWrites.ALWAYS), WRITES, False),
        (RECORD, WRITES._replace(after_sync=SAYS), False),
        (RECORD, WRITES._replace(adopted=[cast("Any", None)]), False),
        (RECORD, WRITES._replace(refilled={0: "token"}), False),
    ],
    ids=["interval", "always", "says something", "a role adopts", "a refill ends"],
)
def test_what_must_be_durable_is_told_after_a_sync(
    tmp_path: Path, record: ZoneRecord, turn: Turn, at_once: bool
) -> None:
    async def run() -> None:
        storage = RocksStorage(tmp_path / "zone")
        told: list[int] = []
        failed: list[str] = []
        runtime = ZoneRuntime(
            cast("Any", SimpleNamespace(record=record, uid="uid", waits_for_values=False)),
            storage,
            cast("Any", Endpoint()),
            lambda uid, turn: told.append(storage.database.synced_sequence),
            lambda: None,
            failed.append,
            ThreadPoolExecutor(1),
        )
        storage.space(0, 0).put(b"key", Row(1, 1, 0, b"value"))
        storage.commit()

        assert runtime.take(turn) == at_once
        await until(lambda: bool(told), "the end of the turn")

        assert told == [0 if at_once else storage.database.sequence]
        await runtime.close()
        assert not failed

    asyncio.run(run())
