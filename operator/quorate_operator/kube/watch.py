"""Watches which objects of a collection exist, at which revision, and which are changed.

Only metadata is transferred; code that needs an object's content reads it.  A watch that ends, is
refused or stalls is begun again with a list, so no change in between is missed.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import aiohttp

from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi

_log = logging.getLogger("quorate.watch")

AS_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
LIST_S = 10.0
WATCH_S = 240
"""Seconds after which the server ends a watch; also ends one whose connection was silently lost."""
AGAIN_S = 1.0
AGAIN_MAX_S = 60.0
"""Longest pause between attempts while the right to list or to watch is missing, seconds."""
_CHANGES = ("ADDED", "MODIFIED", "DELETED")

Revisions = Mapping[str, str | None]
_Found = asyncio.Queue[tuple[str, Revisions, bool] | asyncio.Task[None]]
"""Revisions that were seen, or the task of a watch that has ended."""


class Shown(NamedTuple):
    """One object as a list or a watch shows it."""

    metadata: Mapping[str, Any]
    is_gone: bool = False

    @property
    def name(self) -> str:
        """The object's name in its namespace."""
        return str(self.metadata["name"])

    @property
    def revision(self) -> str:
        """The object's resourceVersion."""
        return str(self.metadata["resourceVersion"])


async def watch_revisions(
    api: KubeApi, paths: Sequence[str], selector: str
) -> AsyncGenerator[tuple[str, Revisions, bool]]:
    """Yield (path, name -> revision or None if gone, whether these are all); endless.

    A defect in one watch is raised here, so that the caller does not wait in vain.
    """
    found: _Found = asyncio.Queue()
    tasks = [asyncio.create_task(_tell_revisions(api, path, selector, found)) for path in paths]
    for task in tasks:
        task.add_done_callback(found.put_nowait)
    try:
        while True:
            each = await found.get()
            if isinstance(each, asyncio.Task):
                await each
                continue
            yield each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _tell_revisions(api: KubeApi, path: str, selector: str, found: _Found) -> None:
    async for shown, is_all in watch_objects(api, path, selector):
        revisions = {each.name: None if each.is_gone else each.revision for each in shown}
        found.put_nowait((path, revisions, is_all))


async def watch_objects(
    api: KubeApi, path: str, selector: str
) -> AsyncGenerator[tuple[list[Shown], bool]]:
    """Yield objects of the collection `path`, and whether these are all; endless."""
    pause_s = AGAIN_S
    while True:
        try:
            shown, at = await _list(api, path, selector)
            yield shown, True
            async with aclosing(_changes(api, path, selector, at)) as changes:
                async for each in changes:
                    yield [each], False
            pause_s = AGAIN_S
        except (ApiRefused, ApiUnclear) as error:
            pause_s = min(2 * pause_s, AGAIN_MAX_S)
            _log.warning("%s is not watched: %s; again in %g s", path, error, pause_s)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.debug("%s: the watch has ended: %r", path, error)
        await asyncio.sleep(pause_s)


async def _list(api: KubeApi, path: str, selector: str) -> tuple[list[Shown], str]:
    shown: list[Shown] = []
    at = ""
    async for page in api.pages(path, selector, AS_METADATA.format("List"), LIST_S):
        shown += [Shown(item["metadata"]) for item in page.get("items") or ()]
        at = str(page["metadata"]["resourceVersion"])
    return shown, at


async def _changes(api: KubeApi, path: str, selector: str, at: str) -> AsyncGenerator[Shown]:
    query = {
        "watch": "1",
        "labelSelector": selector,
        "resourceVersion": at,
        "timeoutSeconds": str(WATCH_S),
    }
    watching = api.watches.get(
        api.access.server + path,
        params=query,
        headers={"Accept": AS_METADATA.format(""), **api.access.headers()},
        timeout=aiohttp.ClientTimeout(total=WATCH_S + 10),
        read_bufsize=1 << 20,
    )
    async with watching as answer:
        if answer.status >= 300:
            text = (await answer.text())[:200]
            raise ApiRefused(answer.status, "", f"GET {path}: {answer.status}: {text}")
        async for line in answer.content:
            event = json.loads(line)
            if event.get("type") not in _CHANGES:
                return  # the history from this revision on is gone: list again
            yield Shown(event["object"]["metadata"], event["type"] == "DELETED")
