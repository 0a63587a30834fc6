"""What an agent does when a copy of it is in a state that must not exist."""

import sys
from pathlib import Path

import pytest
import redis

from quorate_cluster import agent_with_broken_copy
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def test_an_agent_with_a_broken_invariant_stops_and_nothing_of_that_turn_remains(
    start_cluster: StartCluster,
) -> None:
    planted = (sys.executable, "-P", str(Path(agent_with_broken_copy.__file__)))
    cluster = start_cluster(agents=3, prefix=planted)
    cluster.apply_zone("z", partitions=4)
    client = cluster.client("z")
    assert client.set("break-not", "kept")
    port = client.get_node_from_key("break").port
    (broken,) = [a for a in cluster.agents.values() if cluster.port("z", a.name) == port]

    direct = redis.Redis(port=port, socket_timeout=30, retry=None)
    with direct, pytest.raises(redis.ConnectionError):
        direct.set("break", "gone")  # its outcome is unknown, as after a crash

    wait_until(lambda: not broken.is_alive(), "the end of the agent")
    log = broken.log_tail(200)
    assert f"agent {broken.name} stops: InvariantError: partition" in log
    assert "Traceback" in log, "for whoever looks for the defect"
    assert client.get("break") is None, "it was neither written nor sent"
    assert client.get("break-not") == b"kept"

    broken.start()
    cluster.wait_quiet("z")

    assert client.get("break") is None
    assert client.get("break-not") == b"kept"
