"""Watches of an API server: they go on where the last one ended, and end who waits if they fail."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
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
from quorate_operator.kube.traffic import Traffic
from quorate_operator.kube.watch import watch_objects, watch_revisions
from quorate_operator.process.metrics import Metrics

NO_API = cast(KubeApi, None)
PODS = "/api/v1/namespaces/shop/pods"


def event(kind: str, revision: int, name: str = "") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(revision)}}}


class Scripted:
    """An API server with one object, whose watches end after what `watches` says of each.

    An entry is a status that refuses the watch, or its events; after the last one a watch stays.
    """

    def __init__(self) -> None:
        self.watches: list[int | list[dict[str, Any]]] = []
        self.queries: list[dict[str, str]] = []
        self.traffic = Traffic(Metrics().api_requests)
        self.problems: list[str] = []
        self.over = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.server = TestServer(app)

    @property
    def begun(self) -> list[str]:
        """What was asked for: "list", or the revision from which a watch began."""
        return [each.get("resourceVersion", "list") for each in self.queries]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if "watch" not in request.query:
            metadata = {"name": "a", "resourceVersion": "1"}
            return web.json_response(
                {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": metadata}]}
            )
        script = self.watches.pop(0) if self.watches else None
        if isinstance(script, int):
            return web.Response(status=script, text="planted")
        streamed = web.StreamResponse()
        await streamed.prepare(request)
        for each in script or ():
            await streamed.write(json.dumps(each).encode() + b"\n")
        if script is None:
            await self.over.wait()
        return streamed

    async def watch(self, begun: int, told: int) -> list[tuple[list[tuple[str, bool]], bool]]:
        """Watch until so many requests were made, and so many problems or their ends told.

        Return (name, is gone) and whether all.
        """
        access = KubeAccess(str(self.server.make_url("")).rstrip("/"), None)
        api = KubeApi(access, None, self.traffic)
        shown: list[tuple[list[tuple[str, bool]], bool]] = []

        async def follow() -> None:
            objects = watch_objects(api, PODS, "label", self.problems.append)
            async for each, is_all in objects:
                shown.append(([(one.name, one.is_gone) for one in each], is_all))

        following = asyncio.create_task(follow())
        try:
            await until(
                lambda: (len(self.queries), len(self.problems)) == (begun, told),
                f"{begun} requests and {told} told: {self.begun}, {self.problems}",
            )
        finally:
            self.over.set()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await api.close()
        return shown


@pytest.fixture
async def scripted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scripted]:
    monkeypatch.setattr(watch, "AGAIN_S", 0.01)
    made = Scripted()
    async with made.server:
        yield made


LISTED = ([("a", False)], True)


async def test_a_watch_that_ends_goes_on_after_what_it_has_seen(scripted: Scripted) -> None:
    scripted.watches = [
        [event("ADDED", 5, "b"), event("DELETED", 6, "a")],
        [event("BOOKMARK", 9)],
        [],
    ]

    shown = await scripted.watch(begun=5, told=4)

    assert scripted.begun == ["list", "1", "6", "9", "9"]
    assert shown == [LISTED, ([("b", False)], False), ([("a", True)], False)]
    assert {each.get("allowWatchBookmarks") for each in scripted.queries[1:]} == {"true"}
    assert scripted.problems == [""] * 4
    assert list(scripted.traffic.watch_ages_s()) == [("shop", "pods")]


@pytest.mark.parametrize("answer", [410, [event("ERROR", 0)], [event("ADDED", 5, "b"), {}]])
async def test_where_the_server_knows_no_more_what_has_changed_all_is_listed(
    scripted: Scripted, answer: int | list[dict[str, Any]]
) -> None:
    scripted.watches = [answer]

    shown = await scripted.watch(begun=4, told=1 if answer == 410 else 2)

    assert scripted.begun == ["list", "1", "list", "1"]
    assert shown[0] == shown[-1] == LISTED
    assert set(scripted.problems) == {""}


async def test_a_watch_that_is_refused_is_told_until_it_is_not(scripted: Scripted) -> None:
    scripted.watches = [403, 403]

    shown = await scripted.watch(begun=6, told=3)

    assert scripted.begun == ["list", "1"] * 3
    assert shown == [LISTED] * 3
    said = f"{PODS} is not watched: GET {PODS}: 403: planted"
    assert scripted.problems == [said, said, ""]


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
    shared = SharedWatches(NO_API, Scope((), "default"), {"zones": ""}, "label", failures.append)
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
