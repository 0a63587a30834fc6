"""A watch that ends by a defect ends who waits for it: a master that sees nothing must not stay."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from quorate_loopback.waiting import until
from quorate_operator.kube import watch
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import REQUESTS_MAX, ApiUnclear, KubeApi
from quorate_operator.kube.scope import Scope
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.kube.watch import watch_revisions

NO_API = cast(KubeApi, None)


async def test_a_defect_of_one_watch_is_raised_where_changes_are_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def listed(api: KubeApi, path: str, selector: str) -> Any:
        if path == "/broken":
            raise KeyError("planted")
        raise ApiUnclear("away")

    monkeypatch.setattr(watch, "_list", listed)
    before = asyncio.all_tasks()

    changes = watch_revisions(NO_API, ["/sound", "/broken"], "")
    with pytest.raises(KeyError, match="planted"):
        await asyncio.wait_for(anext(changes), 5)

    assert asyncio.all_tasks() == before, "the other watch has ended too"


async def test_a_defect_of_the_watch_that_all_clusters_share_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def listed(api: KubeApi, path: str, selector: str) -> Any:
        raise KeyError("planted")

    monkeypatch.setattr(watch, "_list", listed)
    failures: list[str] = []
    shared = SharedWatches(NO_API, Scope((), "default"), ("zones",), "label", failures.append)
    following = [asyncio.create_task(follow(shared.follow("one", name))) for name in ("a", "b")]

    await until(lambda: bool(failures), "it has ended")

    assert failures == ["stopped by a defect: KeyError: 'planted'"]
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    await shared.close()


async def test_watches_leave_the_connections_of_other_requests_free() -> None:
    """A hundred clusters are watched; rows must still be written."""
    watching, over = asyncio.Semaphore(0), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        streamed = web.StreamResponse()
        await streamed.prepare(request)
        watching.release()
        await over.wait()
        return streamed

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        api = KubeApi(KubeAccess(str(server.make_url("")).rstrip("/"), None), None)
        paths = [f"/apis/{number}" for number in range(2 * REQUESTS_MAX)]
        changes = watch_revisions(api, paths, "")
        following = asyncio.create_task(follow(changes))
        try:
            async with asyncio.timeout(20):
                for _ in paths:
                    await watching.acquire()
                assert (await api.get("/apis/row"))["items"] == []
        finally:
            over.set()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await changes.aclose()
            await api.close()


async def follow(changes: AsyncGenerator[object]) -> None:
    async for _ in changes:
        pass
