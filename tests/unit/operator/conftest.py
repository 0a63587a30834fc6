"""Clusters on loopback that a test's own runner leads."""

from collections.abc import AsyncIterator

import pytest

from quorate_loopback.runner_world import World, world_of_agents


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_of_agents() as world:
        yield world


@pytest.fixture
async def world_elsewhere() -> AsyncIterator[World]:
    """Another cluster, left alone: what happens in it shows how time goes by."""
    async with world_of_agents() as world:
        yield world
