"""Who waits for a change of a node's registration to be written, and what they are told."""

import asyncio
from collections.abc import Callable

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import Key, NodeKey, OutcomeUnknown, Value

WRITTEN_S = 8.0
"""How long an answer waits for the metastore: less than who asks waits for it."""

Judge = Callable[[NodeRecord | None], str | None]
"""What is said of a record that the metastore holds now, None where there is none: empty when it is
as was asked, a sentence when it never will be, None while that is still under way."""


class Registrations:
    """Changes that were asked for and are not written yet, by node.

    `is_removing`, `is_drain_wanted`: what the master means to write of a node.
    """

    def __init__(
        self, is_removing: Callable[[str], bool], is_drain_wanted: Callable[[str], bool]
    ) -> None:
        self._is_removing = is_removing
        self._is_drain_wanted = is_drain_wanted
        self._waiting: dict[str, list[tuple[Judge, asyncio.Future[str]]]] = {}

    async def removed(self, node: str) -> str:
        """Ends when the removal is written; a sentence when the node came back first.

        OutcomeUnknown when nobody can tell in time.
        """

        def judge(record: NodeRecord | None) -> str | None:
            if record is None:
                return ""
            if self._is_removing(node):
                return None  # what was on its way before: the removal follows
            return f"node {node}: it is back and registered again; stop it before it is removed"

        return await self._told(node, judge, "remove it again if it is still there")

    async def drained(self, node: str, draining: bool) -> str:
        """Ends when `draining` is written; a sentence when something else was asked meanwhile.

        OutcomeUnknown when nobody can tell in time.
        """

        def judge(record: NodeRecord | None) -> str | None:
            if record is None:
                return f"node {node}: its registration was removed meanwhile"
            if record.draining == draining:
                return ""
            if self._is_drain_wanted(node) == draining:
                return None
            return f"node {node}: another command asked for the opposite meanwhile"

        return await self._told(node, judge, "ask again if it is not as you asked")

    async def _told(self, node: str, judge: Judge, way_out: str) -> str:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(node, []).append((judge, told))
        try:
            async with asyncio.timeout(WRITTEN_S):
                return await told
        except TimeoutError:
            raise OutcomeUnknown(
                f"node {node}: the metastore did not confirm it within {WRITTEN_S:g} s: look at "
                f"`quorate status`, and {way_out}"
            ) from None

    def stored(self, key: Key, value: Value | None) -> None:
        """The metastore holds `value` under `key` now."""
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
