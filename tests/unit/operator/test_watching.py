"""The watches of declared objects, where the process has no more than a pod's."""

import asyncio
import getpass
from typing import Any, cast

import pytest
from aiohttp import web

from quorate_operator.declared.watching import Watches
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.traffic import Traffic
from quorate_operator.process.metrics import Metrics


async def test_they_begin_for_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an image's 65532: no entry in /etc/passwd, neither $USER nor $LOGNAME."""

    def nobody() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr(getpass, "getuser", nobody)
    asked = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        asked.set()
        return web.json_response({"groups": [], "versions": [], "resources": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    access = KubeAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
    failures: list[str] = []
    traffic = Traffic(Metrics().api_requests)
    watches = Watches(cast(Any, None), lambda: KubeApi(access, None), traffic, failures.append)
    watches.start(("storage",))
    try:
        async with asyncio.timeout(20):
            await asked.wait()
    finally:
        problems = watches.problems()
        await watches.stop()
        await runner.cleanup()
    assert not any("username" in each for each in problems), problems
    assert failures == []
