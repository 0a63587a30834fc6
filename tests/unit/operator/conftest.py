"""Clusters on loopback that a test's own runner leads."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from quorate_loopback import granted
from quorate_loopback.embedded_api import Client, Server
from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import World, world_of_agents
from quorate_operator.declared import controller
from quorate_operator.declared.runs import job_runs
from quorate_operator.owned import owned_objects
from quorate_owned.managed import Managed


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_of_agents() as world:
        yield world


@pytest.fixture
async def world_elsewhere() -> AsyncIterator[World]:
    """Another cluster, left alone: what happens in it shows how time goes by."""
    async with world_of_agents() as world:
        yield world


@pytest.fixture
async def declared(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Namespace]:
    """Declared objects in an API server in memory; nothing leads them yet.

    Requests that the operator's role does not grant are refused.
    """
    monkeypatch.setattr(controller, "LOOK_S", 0.02)
    namespace = Namespace(world)
    namespace.api.refuse = granted.refusal
    yield namespace
    await namespace.controller.close()


@pytest.fixture
async def led(declared: Namespace, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Zone `books` is served; Jobs are looked at often."""
    monkeypatch.setattr(job_runs, "FOLLOW_S", 0.02)
    declared.start()
    declared.zone("books")
    await declared.until_available("books")
    return declared


@pytest.fixture
async def undeclared(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Managed]:
    monkeypatch.setattr(owned_objects, "LOOK_S", 0.005)
    monkeypatch.setattr(owned_objects, "ASKED_S", 0.0)
    made = Managed()
    yield made
    await made.owned.close()


@pytest.fixture
async def managed(undeclared: Managed) -> Managed:
    undeclared.declare(replicas=3)
    await undeclared.until(lambda: len(undeclared.registered) == 3, "three agents")
    return undeclared


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """An embedded operator, whose `start` is called by `client`, or by the test."""
    server = Server(tmp_path)
    yield server
    await server.stop()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    root = await server.start()
    async with aiohttp.ClientSession(headers=server.headers) as session:
        yield Client(session, root)
