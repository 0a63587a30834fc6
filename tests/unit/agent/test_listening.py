"""When a zone listens to clients, and when no more; how many clients it takes in."""

import asyncio

import pytest

from quorate_agent.machine.descriptors import RESERVE, Descriptors
from quorate_lone_agent.agent import Agent
from quorate_lone_agent.listening import listen
from quorate_loopback.waiting import until

PING = b"*1\r\n$4\r\nPING\r\n"


def test_an_endpoint_that_is_closed_before_it_listens_listens_to_nobody() -> None:
    async def late() -> None:
        endpoint = Agent().endpoint
        listening = asyncio.ensure_future(listen(endpoint))
        await endpoint.close()
        port = await listening
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(late())


async def _said(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    """The answer to a new client's PING; it stays connected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PING)
    async with asyncio.timeout(10):
        return await reader.readline(), writer


def test_clients_without_a_descriptor_are_told_so_until_another_has_left() -> None:
    async def crowded() -> None:
        descriptors = Descriptors(RESERVE + 2)
        endpoint = Agent().endpoint
        port = await listen(endpoint, descriptors)
        first, second, third = [await _said(port) for _ in range(3)]
        assert [first[0], second[0]] == [b"+PONG\r\n"] * 2
        assert third[0] == b"-ERR max number of clients reached\r\n"

        first[1].close()
        await first[1].wait_closed()
        await until(lambda: descriptors.clients == 1, "client that has left")

        fourth = await _said(port)
        assert fourth[0] == b"+PONG\r\n"
        for _, writer in (second, third, fourth):
            writer.close()
            await writer.wait_closed()
        await endpoint.close()
        await asyncio.sleep(0)
        assert descriptors.clients == 0

    asyncio.run(crowded())
