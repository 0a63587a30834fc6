"""One Redis and one agent for all tests of a file."""

from collections.abc import Callable, Iterator

import pytest

from quorate_cluster.cluster import Cluster
from quorate_differential.redis_process import redis_process


@pytest.fixture(scope="module")
def redis_port(
    needs: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """Where a real redis-server that owns all slots listens."""
    needs("redis-server")
    with redis_process(tmp_path_factory.mktemp("redis")) as port:
        yield port


@pytest.fixture(scope="module", params=["InMemory", "Persistent"])
def agent_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The client port of an agent that is alone, so every slot is its own."""
    zone = f"alone-{request.param.lower()}"
    with Cluster(agents=1, name="differential") as cluster:
        cluster.apply_zone(zone, partitions=16, storage=request.param)
        yield cluster.port(zone, "agent-1")
