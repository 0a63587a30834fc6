"""Watches which objects of a collection exist, at which revision, and which are changed.

Only metadata is transferred; code that needs an object's content reads it.  A watch ends every
minute, and the next one continues from the last revision seen.  Bookmarks keep that revision recent
while nothing changes.  If it is too old, or a request is refused, a list comes first.  So no change
in between is missed.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi

_log = logging.getLogger("quorate.watch")

AS_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
LIST_S = 10.0
WATCH_S = 60
"""Seconds after which the server ends a watch; also ends one whose connection was silently lost."""
AGAIN_S = 1.0
AGAIN_MAX_S = 60.0
"""Longest pause between attempts while the right to list or to watch is missing, seconds."""
_CHANGES = ("ADDED", "MODIFIED", "DELETED")
_BOOKMARK = "BOOKMARK"
_EXPIRED = 410

Revisions = Mapping[str, str | None]
_Found = asyncio.Queue[tuple[str, Revisions, bool] | asyncio.Task[None]]
"""Revisions that were seen, or the task of a watch that has ended."""


class _Expired(Exception):
    """The server no longer knows what has changed since a revision."""


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


def _ignore(problem: str) -> None:
    pass


async def watch_objects(
    api: KubeApi, path: str, selector: str, on_problem: Callable[[str], None] = _ignore
) -> AsyncGenerator[tuple[list[Shown], bool]]:
    """Yield objects of the collection `path`, and whether these are all; endless.

    `on_problem`: called with a sentence when the list or the watch fails, and with "" when a watch
    begins.
    """
    pause_s, at = AGAIN_S, ""
    while True:
        try:
            if not at:
                shown, at = await _list(api, path, selector)
                yield shown, True
            async with _begun(api, path, selector, at) as lines:
                pause_s = AGAIN_S
                on_problem("")
                async for line in lines:
                    kind, each = _event(line)
                    at = each.revision
                    if kind in _CHANGES:
                        yield [each], False
        except _Expired:
            at = ""
        except (ApiRefused, ApiUnclear) as error:
            pause_s, at = min(2 * pause_s, AGAIN_MAX_S), ""
            on_problem(f"{path} is not watched: {error}")
            _log.warning("%s is not watched: %s; retrying in %g s", path, error, pause_s)
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


@asynccontextmanager
async def _begun(
    api: KubeApi, path: str, selector: str, at: str
) -> AsyncIterator[aiohttp.StreamReader]:
    """Watch from revision `at` on: yields the events, a line each, until the server ends it."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
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
        if answer.status == _EXPIRED:
            raise _Expired
        if answer.status >= 300:
            text = (await answer.text())[:200]
            raise ApiRefused(answer.status, "", f"GET {path}: {answer.status}: {text}")
        yield answer.content


def _event(line: bytes) -> tuple[str, Shown]:
    """Return an event's kind and its object, of a bookmark only the revision."""
    event = json.loads(line)
    kind = str(event.get("type"))
    if kind != _BOOKMARK and kind not in _CHANGES:
        raise _Expired
    return kind, Shown(event["object"]["metadata"], kind == "DELETED")
