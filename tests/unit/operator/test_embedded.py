"""The embedded operator does not go on as if it led when it no longer does."""

import asyncio
from pathlib import Path

import pytest

from quorate.protocol.settings import DEFAULTS
from quorate_operator.embedded import Embedded
from quorate_operator.embedded_store import EmbeddedStore


class Counting(Embedded):
    """Counts how often it looks."""

    looks = 0

    async def reconcile(self) -> None:
        self.looks += 1
        await super().reconcile()


class Defective(Counting):
    """Fails the second time it looks."""

    async def reconcile(self) -> None:
        await super().reconcile()
        if self.looks == 2:
            raise ValueError("a defect")


async def test_a_defect_while_reconciling_is_handed_to_whoever_waits(tmp_path: Path) -> None:
    embedded = Defective(EmbeddedStore.open(tmp_path), DEFAULTS)
    await embedded.start()

    with pytest.raises(ValueError, match="a defect"):
        async with asyncio.timeout(10):
            await embedded.wait_failed()

    await embedded.close()


async def test_who_stops_waiting_for_a_failure_does_not_end_the_loop(tmp_path: Path) -> None:
    embedded = Counting(EmbeddedStore.open(tmp_path), DEFAULTS)
    await embedded.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await embedded.wait_failed()

    seen = embedded.looks
    async with asyncio.timeout(10):
        while embedded.looks < seen + 3:
            embedded.changed()
            await asyncio.sleep(0.01)

    await embedded.close()
