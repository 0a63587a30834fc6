"""When a zone listens to clients, and when no more."""

import asyncio

import pytest

from quorate_lone_agent.agent import Agent


def test_an_endpoint_that_is_closed_before_it_listens_listens_to_nobody() -> None:
    async def late() -> None:
        endpoint = Agent().endpoint
        listening = asyncio.ensure_future(endpoint.listen("localhost", [0]))
        await asyncio.sleep(0)  # its host's address is being looked up
        await endpoint.close()
        port = await listening
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(late())
