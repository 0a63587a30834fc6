"""What the agent tells people and probes over HTTP: /metrics, /healthz, /readyz.

A responder of its own: three fixed GETs do not justify a web framework's memory in every agent.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CollectorRegistry, generate_latest

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 10.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Answer = tuple[HTTPStatus, str, bytes]


class AdminServer:
    """The listening server; `port` is the one it got."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], tuple[bool, str]]) -> None:
        self._registry = registry
        self._ready = ready
        self._server: asyncio.Server | None = None
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Listen on host:port (0: a free one)."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head.split(b"\r\n", 1)[0].split(b" "))
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # whoever asked went away, or never finished asking
        finally:
            writer.close()

    def _answer(self, request: list[bytes]) -> Answer:
        if len(request) != 3 or request[0] not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n"
        path = request[1].split(b"?", 1)[0]
        if path == b"/metrics":
            return HTTPStatus.OK, METRICS_TYPE, generate_latest(self._registry)
        if path == b"/healthz":
            return HTTPStatus.OK, "text/plain", b"ok\n"
        if path == b"/readyz":
            ready, sentence = self._ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "text/plain", sentence.encode() + b"\n"
        return HTTPStatus.NOT_FOUND, "text/plain", b"/metrics, /healthz, /readyz\n"


async def start_admin(
    host: str,
    port: int,
    registry: CollectorRegistry,
    ready: Callable[[], tuple[bool, str]],
) -> AdminServer:
    """Start answering; OSError when the port is taken."""
    server = AdminServer(registry, ready)
    await server.listen(host, port)
    return server
