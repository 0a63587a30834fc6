"""A few commands that take long do not cost an agent its leases."""

import pytest
import redis

from quorate_cluster.fixtures import StartCluster
from quorate_cluster.routing import keys_by_port
from quorate_cluster.steadiness import changes, standing

pytestmark = [
    pytest.mark.process,
    pytest.mark.alone,
    pytest.mark.deep,
    pytest.mark.timeout(300),
]


def test_no_agent_is_taken_for_lost_over_a_pipeline_of_slow_reads(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, storage="InMemory")
    cluster.wait_quiet("z")
    port = cluster.port("z", "agent-1")
    key = keys_by_port(port, 1000)[port][0]
    with redis.Redis(port=port, socket_timeout=200) as client:
        for part in range(6):
            client.hset(key, mapping={f"field{part}{n:020d}": "x" * 10 for n in range(100_000)})
        before = standing(cluster, "z")
        pipeline = client.pipeline(transaction=False)
        for n in range(100):
            pipeline.hget(key, f"field0{n:020d}")
        assert pipeline.execute() == [b"x" * 10] * 100
    assert changes(cluster, "z", before) == []
