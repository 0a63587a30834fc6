"""A client that sends and sends and reads nothing is cut off before its replies fill the memory."""

import asyncio

import pytest
import uvloop

from quorate_agent import client as client_module
from quorate_agent.client import ClientConnection
from quorate_agent.resp.session import Connection

REPLY = b"$100000\r\n%b\r\n" % bytes(100_000)
PING = b"*1\r\n$4\r\nPING\r\n"


class _Endpoint:
    """Answers every command with much."""

    def __init__(self) -> None:
        self.client: ClientConnection
        self.ended = asyncio.Event()

    def connected(self, client: ClientConnection) -> None:
        client.state = Connection(1, "", "", 0)
        self.client = client

    def disconnected(self, client: ClientConnection) -> None:
        self.ended.set()

    def run(self, client: ClientConnection, commands: list[list[bytes]]) -> None:
        for _ in commands:
            client.answer(REPLY)

    def cut(self, client: ClientConnection) -> None:
        client.take_in()


async def _ask(times: int, *, is_read: bool) -> tuple[bool, int]:
    """Whether the connection was cut off, and the most that waited for the client."""
    endpoint = _Endpoint()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ClientConnection(endpoint), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    waited = 0
    for _ in range(times):
        writer.write(PING)
        await asyncio.sleep(0)
        if is_read:
            await reader.readexactly(len(REPLY))
        if endpoint.ended.is_set():
            break
        if hasattr(endpoint, "client"):
            waited = max(waited, endpoint.client.transport.get_write_buffer_size())
        await asyncio.sleep(0.001)
    cut_off = endpoint.ended.is_set()
    writer.transport.abort()
    await endpoint.ended.wait()
    server.close()
    await server.wait_closed()
    return cut_off, waited


@pytest.mark.parametrize("is_read", [False, True], ids=["reads-nothing", "reads"])
def test_only_who_reads_nothing_is_cut_off(is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 4_000_000
    monkeypatch.setattr(client_module, "OUTPUT_BYTES_MAX", most)

    # The reader of asyncio and the kernel take a few megabytes before anything waits.
    cut_off, waited = uvloop.run(_ask(400, is_read=is_read))

    assert cut_off is not is_read
    assert waited <= most + len(REPLY)
