"""Two of three agents are gone: nothing is written, and `READONLY` connections are answered."""

import contextlib
from typing import Any

import pytest
import redis
from redis.exceptions import RedisError

from quorate_cluster.fixtures import StartCluster
from quorate_cluster.outage import key_in_each
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 8


def test_without_a_quorum_the_last_copy_is_read_by_readonly_connections_only(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS, dataNodesAutoAdjustScaleDownSeconds="Never")
    keys = key_in_each(PARTITIONS)
    writer = cluster.client("z")
    for key in keys:
        writer.set(key, f"value of {key}")
    first, second, last = cluster.agents.values()

    def counts() -> tuple[int, int]:
        status = cluster.zone_status("z")
        return status["unavailable"], status["read_only"]

    first.kill()
    cluster.wait_left(first.name)
    cluster.wait_available("z")
    second.kill()
    wait_until(lambda: counts() == (PARTITIONS, PARTITIONS), "all are read-only", 60, counts)

    told = cluster.zone("z")["status"]
    assert told["partitions"]["readOnly"] == PARTITIONS
    available = next(each for each in told["conditions"] if each["type"] == "Available")
    assert available["status"] == "False"
    assert f"start agents that are away: {first.name}, {second.name}" in available["message"]

    options: dict[str, Any] = {
        "port": cluster.port("z", last.name),
        "socket_timeout": 20,
        "decode_responses": True,
    }
    plain = redis.Redis(cluster.host, **options)
    reader = redis.Redis(cluster.host, single_connection_client=True, **options)
    with contextlib.closing(plain), contextlib.closing(reader):
        with pytest.raises(RedisError):  # the primary is gone, or reaches no quorum
            plain.get(keys[0])
        assert reader.execute_command("READONLY")
        assert [reader.get(key) for key in keys] == [f"value of {key}" for key in keys]
        with pytest.raises(RedisError):
            reader.set(keys[0], "not written")
        assert reader.get(keys[0]) == f"value of {keys[0]}"

    first.start()
    cluster.wait_available("z")
    assert counts() == (0, 0)
    writer.set(keys[0], "written again")
