"""The admin port of an agent: metrics, and whether the agent is alive, has started, is ready.

GET /metrics, /healthz, /startupz and /readyz over HTTP/1.1, one answer per connection.  A short
handler replaces a web framework, because an empty agent is to stay small.  No secret is needed:
probes have none, and there is nothing here but names, counts and sentences.  Anything that requires
the cluster's secret (protocol.md, section 3) must not be added here.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from quorate_agent.process.probes import Probes

_log = logging.getLogger("quorate.admin")

REQUEST_BYTES_MAX: Final = 8 * 1024
REQUEST_SECONDS_MAX: Final = 10.0
CONNECTIONS_MAX: Final = 32
"""At a time; more are closed at once, because each may hold a descriptor for that long."""
_TEXT: Final = "text/plain; charset=utf-8"
_PATHS: Final = (b"/metrics", b"/healthz", b"/startupz", b"/readyz")


class AdminServer:
    """A listening admin server."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        self._server.close()


async def start_admin(host: str, port: int, probes: Probes) -> AdminServer:
    """Listen at host:port (0: a free port)."""

    open_ones: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_ones) >= CONNECTIONS_MAX:
            writer.close()
            return
        open_ones.add(writer)
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                request = await reader.readuntil(b"\r\n\r\n")
                status, content_type, body = _respond(request, probes)
                writer.write(_head(status, content_type, len(body)) + body)
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_head(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TEXT, 0))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
            _log.debug("admin request ended early: %r", error)
        finally:
            open_ones.discard(writer)
            writer.close()

    return AdminServer(await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES_MAX))


def _respond(request: bytes, probes: Probes) -> tuple[HTTPStatus, str, bytes]:
    line = request.split(b"\r\n", 1)[0].split(b" ")
    if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
        return HTTPStatus.BAD_REQUEST, _TEXT, b"not an HTTP/1 request\n"
    method, path = line[0], line[1].split(b"?", 1)[0]
    if path not in _PATHS:
        here = b"here are %b\n" % b", ".join(_PATHS)
        return HTTPStatus.NOT_FOUND, _TEXT, here
    if method != b"GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET only\n"
    if path == b"/metrics" and (metrics := probes.metrics()) is not None:
        return HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, metrics
    if path == b"/healthz":  # a process that answers is alive, even while it reads logs
        return HTTPStatus.OK, _TEXT, b"ok\n"
    is_so, sentence = probes.ready() if path == b"/readyz" else probes.started()
    status = HTTPStatus.OK if is_so else HTTPStatus.SERVICE_UNAVAILABLE
    return status, _TEXT, sentence.encode() + b"\n"


def _head(status: HTTPStatus, content_type: str, length: int) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {length}\r\n"
        f"Connection: close\r\n\r\n"
    ).encode()
