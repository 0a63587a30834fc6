"""The admin port answers three questions and survives everything else."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry, Counter

from quorate_agent.admin import CONNECTIONS_MAX, start_admin

HOST = "127.0.0.1"
Ask = Callable[[bytes], Awaitable[tuple[str, str]]]


async def ask(port: int, request: bytes) -> tuple[str, str]:
    """The status line and the body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    assert f"Content-Length: {len(body)}\r\n" in head + "\r\n"
    return head.partition("\r\n")[0], body


async def test_metrics_are_served_as_text() -> None:
    registry = CollectorRegistry()
    Counter("quorate_commands", "Commands", registry=registry).inc(3)
    server = await start_admin(HOST, 0, registry, lambda: (True, "takes part"))

    status, body = await ask(server.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

    assert status == "HTTP/1.1 200 OK"
    assert "quorate_commands_total 3.0\n" in body
    await server.close()


@pytest.mark.parametrize("ready", [(True, "takes part"), (False, "waits for the master")])
async def test_readiness_comes_with_its_sentence(ready: tuple[bool, str]) -> None:
    server = await start_admin(HOST, 0, CollectorRegistry(), lambda: ready)

    status, body = await ask(server.port, b"GET /readyz HTTP/1.1\r\n\r\n")

    assert status == ("HTTP/1.1 200 OK" if ready[0] else "HTTP/1.1 503 Service Unavailable")
    assert body == ready[1] + "\n"
    await server.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", "200 OK"),
        (b"GET /healthz?verbose HTTP/1.0", "200 OK"),
        (b"GET / HTTP/1.1", "404 Not Found"),
        (b"POST /metrics HTTP/1.1", "405 Method Not Allowed"),
        (b"*1", "400 Bad Request"),
        (b"\x16\x03\x01 \xff \xfe", "400 Bad Request"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1", "431 Request Header Fields Too Large"),
    ],
)
async def test_any_request_has_its_answer(request_line: bytes, status: str) -> None:
    server = await start_admin(HOST, 0, CollectorRegistry(), lambda: (True, "takes part"))

    found, _ = await ask(server.port, request_line + b"\r\n\r\n")

    assert found == f"HTTP/1.1 {status}"
    assert (await ask(server.port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 200 OK"
    await server.close()


async def test_who_opens_many_connections_and_asks_nothing_holds_only_some() -> None:
    async def asked() -> bytes:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    server = await start_admin(HOST, 0, CollectorRegistry(), lambda: (True, "takes part"))
    held = [await asyncio.open_connection(HOST, server.port) for _ in range(CONNECTIONS_MAX)]
    async with asyncio.timeout(10):
        while await asked():
            pass  # those before are not all taken yet

    for _, writer in held:
        writer.close()
    async with asyncio.timeout(10):
        while not (await asked()).startswith(b"HTTP/1.1 200"):
            pass  # their ends are not all seen yet
    await server.close()
