"""Requests that wait until what they changed is written, and their answers.

These are changes of nodes' registrations, and rows that a person decided.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import Key, NodeKey, OutcomeUnknown, ShardKey, Value

WRITTEN_S = 8.0
"""Seconds that an answer waits for the metastore: less than the client waits for the answer."""

_WAY_OUT = ": see `quorate status`, and repeat the command if it had no effect"

Judge = Callable[[NodeRecord | None], str | None]
"""Judges a node's record as the metastore holds it now, None if there is none.  Returns "" if it is
as asked, a sentence if it never will be, None while that is under way."""


class _Rows(NamedTuple):
    """Rows of one zone that are awaited: those `left`, by partition."""

    zone: str
    left: dict[int, PartitionRow]
    told: asyncio.Future[None]


class AwaitedWrites:
    """Requested changes that are not written yet.

    `wanted`: returns the record that the master wants for a node; None if there is to be none.
    """

    def __init__(self, wanted: Callable[[str], NodeRecord | None]) -> None:
        self._wanted = wanted
        self._waiting: dict[str, list[tuple[Judge, asyncio.Future[str]]]] = {}
        self._rows: list[_Rows] = []

    async def removed(self, node: str) -> str:
        """Return "" when the removal is written, or a sentence if the node came back first.

        Raises OutcomeUnknown if neither is known within WRITTEN_S.
        """

        def judge(record: NodeRecord | None) -> str | None:
            if record is None:
                return ""
            if self._wanted(node) is None:
                return None  # an earlier write; the removal follows
            return f"node {node}: it is back and registered again; stop it before you remove it"

        return await self._told(node, judge)

    async def drained(self, node: str, draining: bool) -> str:
        """Return "" when `draining` is written, or a sentence if the opposite was asked meanwhile
        or the registration was removed.

        Raises OutcomeUnknown if neither is known within WRITTEN_S.
        """

        def judge(record: NodeRecord | None) -> str | None:
            if record is not None and record.draining == draining:
                return ""
            wanted = self._wanted(node)
            if wanted is None:
                return f"node {node}: its registration was removed meanwhile"
            if wanted.draining == draining:
                return None
            return f"node {node}: another command has undone it meanwhile"

        return await self._told(node, judge)

    async def rows(self, uid: str, rows: Iterable[PartitionRow]) -> None:
        """Return when each of these rows of a zone was stored, whichever rows have followed.

        Raises OutcomeUnknown if that is not known within WRITTEN_S.
        """
        left = {row.partition: row for row in rows}
        if not left:
            return
        waiting = _Rows(uid, left, asyncio.get_running_loop().create_future())
        self._rows.append(waiting)
        try:
            async with asyncio.timeout(WRITTEN_S):
                await waiting.told
        except TimeoutError:
            why = f"the metastore did not confirm {_which(left)} within {WRITTEN_S:g} s"
            raise OutcomeUnknown(f"{why}{_WAY_OUT}") from None
        finally:
            self._rows = [each for each in self._rows if each is not waiting]

    async def _told(self, node: str, judge: Judge) -> str:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(node, []).append((judge, told))
        try:
            async with asyncio.timeout(WRITTEN_S):
                return await told
        except TimeoutError:
            why = f"the metastore did not confirm it within {WRITTEN_S:g} s"
            raise OutcomeUnknown(f"node {node}: {why}{_WAY_OUT}") from None

    def stored(self, key: Key, value: Value | None) -> None:
        """Note that the metastore now holds `value` under `key`."""
        if isinstance(key, ShardKey) and isinstance(value, tuple):
            self._rows_stored(key.uid, value)
        if not isinstance(key, NodeKey) or not (value is None or isinstance(value, NodeRecord)):
            return
        still = []
        for judge, told in self._waiting.pop(key.name, ()):
            said = judge(value)
            if told.done():
                continue
            if said is None:
                still.append((judge, told))
            else:
                told.set_result(said)
        if still:
            self._waiting[key.name] = still

    def _rows_stored(self, uid: str, stored: Iterable[PartitionRow]) -> None:
        awaited = [each for each in self._rows if each.zone == uid]
        if not awaited:
            return
        by_partition = {row.partition: row for row in stored}
        for waiting in awaited:
            for partition, row in list(waiting.left.items()):
                if by_partition.get(partition) == row:
                    del waiting.left[partition]
            if not waiting.left and not waiting.told.done():
                waiting.told.set_result(None)

    def end(self, why: str) -> None:
        """End all waits: nothing more is written here.  Only the next master knows whether the
        changes under way were written."""
        waiting, self._waiting = self._waiting, {}
        for node, of_node in waiting.items():
            for _, told in of_node:
                if not told.done():
                    told.set_exception(OutcomeUnknown(f"node {node}: {why}{_WAY_OUT}"))
        for each in self._rows:
            if not each.told.done():
                each.told.set_exception(OutcomeUnknown(f"{_which(each.left)}: {why}{_WAY_OUT}"))


def _which(left: Iterable[int]) -> str:
    return f"the rows of partitions {', '.join(map(str, sorted(left)))}"
