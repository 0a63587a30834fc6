"""How the pod of a validation is asked how far it is: the program's own port answers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quorate_operator.jobs import job_progress
from quorate_operator.jobs.job_progress import percent_at, running_at
from quorate_spark.tell_progress import progress_port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[int]:
    """A port of a pod that answers this; None: nothing."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await ended.wait()
        else:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are waited for longer than any machine is busy with other things."""
    monkeypatch.setattr(job_progress, "TIMEOUT_S", 60.0)


async def test_the_program_answers_with_its_percentage() -> None:
    port = free_port()
    with progress_port(port) as progress:
        assert await percent_at("127.0.0.1", port) == 0
        progress.reached(3, 8)
        assert await percent_at("127.0.0.1", port) == 37
        if socket.has_dualstack_ipv6():
            assert await percent_at("::1", port) == 37
        progress.reached(8, 8)
        assert await percent_at("127.0.0.1", port) == 99
        with progress_port(port) as unheard:  # the port is taken: nothing fails
            unheard.reached(1, 8)
        progress.reached(1, 8)  # a later pass
        assert await percent_at("127.0.0.1", port) == 99

    assert await percent_at("127.0.0.1", port) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n101",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntea",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n-1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"1" * 100_000,
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n50",
        b"tea",
        None,
    ],
)
async def test_what_is_no_percentage_is_none(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is None:
        monkeypatch.setattr(job_progress, "TIMEOUT_S", 0.2)
    async with answering(answer) as port:
        assert await percent_at("127.0.0.1", port) is None


async def test_it_is_not_sent_elsewhere() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n50") as elsewhere:
        assert await percent_at("127.0.0.1", elsewhere) == 50
        location = f"Location: http://127.0.0.1:{elsewhere}/\r\nContent-Length: 0\r\n\r\n"
        async with answering(b"HTTP/1.1 302 Found\r\n" + location.encode()) as port:
            assert await percent_at("127.0.0.1", port) is None


def test_the_pod_that_runs_is_asked() -> None:
    ended = {"status": {"phase": "Failed", "podIP": "10.0.0.1"}}
    starting = {"status": {"phase": "Running"}}
    running = {"status": {"phase": "Running", "podIP": "10.0.0.2"}}

    assert running_at([ended, starting, running]) == "10.0.0.2"
    assert running_at([ended, starting, {}]) == ""
