"""The admin port answers four questions and survives everything else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

import pytest
from prometheus_client import CollectorRegistry, Counter

from quorate_agent.process.admin import CONNECTIONS_MAX, start_admin
from quorate_agent.process.probes import Probes

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


class _Core:
    """An agent's core, as far as probes look at it."""

    registered = informed = True
    refusal = ""
    leaving = False
    opening: tuple[str, ...] = ()
    zones: ClassVar[dict[str, None]] = {"uid-1": None, "uid-2": None}


def probes_of(**changes: Any) -> Probes:
    """Those of an agent that takes part, but for what changes."""
    core = _Core()
    for name, value in changes.items():
        setattr(core, name, value)
    probes = Probes()
    probes.starts(CollectorRegistry())
    probes.listens(lambda: cast(Any, core))
    return probes


async def test_metrics_are_served_as_text() -> None:
    registry = CollectorRegistry()
    Counter("quorate_commands", "Commands", registry=registry).inc(3)
    probes = Probes()
    probes.starts(registry)
    server = await start_admin(HOST, 0, probes)

    status, body = await ask(server.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

    assert status == "HTTP/1.1 200 OK"
    assert "quorate_commands_total 3.0\n" in body
    await server.close()


@pytest.mark.parametrize(
    ("changes", "is_ready", "sentence"),
    [
        ({}, True, "serves 2 zones"),
        ({"registered": False}, False, "no master has registered this agent yet"),
        ({"registered": False, "refusal": "another has its name"}, False, "another has its name"),
        ({"informed": False}, False, "the master has not sent all zones yet"),
        ({"opening": ("uid-3",)}, False, "1 of 3 zones are not open yet"),
        ({"leaving": True}, False, "hands its primaries over and ends"),
    ],
)
async def test_readiness_comes_with_its_sentence(
    changes: dict[str, Any], is_ready: bool, sentence: str
) -> None:
    server = await start_admin(HOST, 0, probes_of(**changes))

    status, body = await ask(server.port, b"GET /readyz HTTP/1.1\r\n\r\n")
    started, _ = await ask(server.port, b"GET /startupz HTTP/1.1\r\n\r\n")

    assert status == ("HTTP/1.1 200 OK" if is_ready else "HTTP/1.1 503 Service Unavailable")
    assert body == sentence + "\n"
    assert started == "HTTP/1.1 200 OK"
    await server.close()


def test_an_agent_that_is_ready_stays_so_while_it_opens_zones_that_are_made_later() -> None:
    core = _Core()
    probes = Probes()
    probes.listens(lambda: cast(Any, core))
    core.opening = ("uid-2",)
    assert not probes.ready()[0], "told of at its start"
    core.opening = ()
    assert probes.ready()[0]
    core.opening = ("uid-3", "uid-4")

    assert probes.ready() == (True, "serves 2 zones")
    core.registered = False
    assert probes.ready() == (False, "no master has registered this agent yet")
    core.registered, core.leaving = True, True
    assert probes.ready() == (False, "hands its primaries over and ends")


async def test_an_agent_that_reads_logs_lives_and_has_not_started() -> None:
    probes = Probes()
    server = await start_admin(HOST, 0, probes)
    probes.opening("uid-7", 3, 12)

    said = {
        path: await ask(server.port, f"GET {path} HTTP/1.1\r\n\r\n".encode())
        for path in ("/healthz", "/startupz", "/readyz", "/metrics")
    }

    waits = ("HTTP/1.1 503 Service Unavailable", "opens zone uid-7, 3 of 12: its log is read\n")
    assert said.pop("/healthz")[0] == "HTTP/1.1 200 OK"
    assert said == {"/startupz": waits, "/readyz": waits, "/metrics": waits}
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
    server = await start_admin(HOST, 0, probes_of())

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

    server = await start_admin(HOST, 0, probes_of())
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
