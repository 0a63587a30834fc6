"""Who waits for a node's registration to be removed, and what they are told."""

import asyncio
from collections.abc import Callable

from quorate.protocol.metastore import Key, NodeKey, OutcomeUnknown, Value

REMOVAL_S = 8.0
"""How long the answer to a removal waits for the metastore: less than who asks waits for it."""


class Removals:
    """Removals that were begun and are not written yet, by node.

    `is_removing`: whether the master still means to remove it.
    """

    def __init__(self, is_removing: Callable[[str], bool]) -> None:
        self._is_removing = is_removing
        self._waiting: dict[str, list[asyncio.Future[str]]] = {}

    async def written(self, node: str) -> str:
        """Ends when the removal is written; a sentence when the node came back first.

        OutcomeUnknown when nobody can tell in time.
        """
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(node, []).append(told)
        try:
            async with asyncio.timeout(REMOVAL_S):
                return await told
        except TimeoutError:
            raise OutcomeUnknown(
                f"node {node}: the metastore did not confirm it within {REMOVAL_S:g} s: look at "
                "`quorate status`, and remove it again if it is still there"
            ) from None

    def stored(self, key: Key, value: Value | None) -> None:
        """The metastore holds `value` under `key` now."""
        if not isinstance(key, NodeKey):
            return
        if value is not None and self._is_removing(key.name):
            return  # what was on its way before: the removal follows
        back = f"node {key.name}: it is back and registered again; stop it before it is removed"
        for told in self._waiting.pop(key.name, ()):
            if not told.done():
                told.set_result("" if value is None else back)
