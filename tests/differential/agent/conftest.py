"""One Redis for all tests of a file."""

from collections.abc import Callable, Iterator

import pytest

from quorate_differential.redis_process import redis_process


@pytest.fixture(scope="module")
def redis_port(
    needs: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """Where a real redis-server that owns all slots listens."""
    needs("redis-server")
    with redis_process(tmp_path_factory.mktemp("redis")) as port:
        yield port
