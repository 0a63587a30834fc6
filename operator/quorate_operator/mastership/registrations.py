"""Requests that wait until a change of a node's registration is written, and their answers."""

import asyncio
from collections.abc import Callable

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import Key, NodeKey, OutcomeUnknown, Value

WRITTEN_S = 8.0
"""Seconds that an answer waits for the metastore: less than the client waits for the answer."""

_WAY_OUT = ": see `quorate status`, and repeat the command if it had no effect"

Judge = Callable[[NodeRecord | None], str | None]
"""Judges a node's record as the metastore holds it now, None if there is none.  Returns "" if it is
as asked, a sentence if it never will be, None while that is under way."""


class Registrations:
    """Requested changes that are not written yet, by node.

    `wanted`: returns the record that the master wants for a node; None if there is to be none.
    """

    def __init__(self, wanted: Callable[[str], NodeRecord | None]) -> None:
        self._wanted = wanted
        self._waiting: dict[str, list[tuple[Judge, asyncio.Future[str]]]] = {}

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

    def end(self, why: str) -> None:
        """End all waits: nothing more is written here.  Only the next master knows whether the
        changes under way were written."""
        waiting, self._waiting = self._waiting, {}
        for node, of_node in waiting.items():
            for _, told in of_node:
                if not told.done():
                    told.set_exception(OutcomeUnknown(f"node {node}: {why}{_WAY_OUT}"))
