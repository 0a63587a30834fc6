"""What stands between an operator and the API server and answers some requests itself.

Plain HTTP on loopback in front; behind it, the API server with the credentials of one kubeconfig.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
from aiohttp import web

from quorate_operator.kube.access import KubeAccess

_END_TO_END = ("content-type", "accept", "retry-after")


class Answer(NamedTuple):
    """What is answered in the API server's place."""

    status: int
    headers: dict[str, str]
    reason: str = ""


class ApiProxy:
    """`judge(method, path)`: the answer to give instead, or None to hand the request on.

    `seen`: every request as (method, path), answered here or there."""

    def __init__(self, access: KubeAccess) -> None:
        self.judge: Callable[[str, str], Answer | None] = lambda method, path: None
        self.seen: list[tuple[str, str]] = []
        self.server = ""
        self._access = access
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=access.context or False)
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer here, or hand on and stream what comes back."""
        self.seen.append((request.method, request.path))
        answer = self.judge(request.method, request.path)
        if answer is not None:
            body = {"kind": "Status", "reason": answer.reason, "message": "answered by the proxy"}
            return web.json_response(body, status=answer.status, headers=answer.headers)
        kept = {k: v for k, v in request.headers.items() if k.lower() in _END_TO_END}
        async with self._session.request(
            request.method,
            self._access.server + request.path_qs,
            data=await request.read(),
            headers={**kept, **self._access.headers()},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as found:
            told = {k: v for k, v in found.headers.items() if k.lower() in _END_TO_END}
            response = web.StreamResponse(status=found.status, headers=told)
            await response.prepare(request)
            async for piece in found.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async def close(self) -> None:
        await self._session.close()


@asynccontextmanager
async def api_proxy(access: KubeAccess) -> AsyncIterator[ApiProxy]:
    """One that listens while the block runs."""
    proxy = ApiProxy(access)
    app = web.Application(client_max_size=16 << 20)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield proxy
    finally:
        await runner.cleanup()
        await proxy.close()
