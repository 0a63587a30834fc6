"""An agent is gone or silent: what was acknowledged is there, and all keys can be written again."""

import time
from collections.abc import Callable

import pytest
import redis
from redis.exceptions import ClusterDownError, RedisError

from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.outage import Pulses, key_in_each
from quorate_cluster.processes import HOST, Agent
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload
from quorate_differential.raw_replies import RawConnection

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

_OUTAGE_S_MAX = 30.0
"""Generous: the machine may be busy.  What it was is reported."""


@pytest.mark.parametrize(
    ("what", "disturb", "mend", "socket_timeout_s"),
    [
        ("kill -9", Agent.kill, Agent.start, 8),
        ("SIGSTOP", Agent.pause, Agent.resume, 0.5),
    ],
)
def test_losing_an_agent_loses_no_acknowledged_write_and_every_key_is_writable_again(
    start_cluster: StartCluster,
    measured: Measured,
    what: str,
    disturb: Callable[[Agent], None],
    mend: Callable[[Agent], None],
    socket_timeout_s: float,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    victim = cluster.agent_with_most_primaries()
    pulses = Pulses(cluster, "z", socket_timeout_s=socket_timeout_s)
    with Workload(cluster, "z") as load, pulses:
        moment = time.monotonic()
        disturb(victim)

        pulses.wait_all_written_since(moment)

        gaps = sorted(pulses.longest_gaps_s(moment))
        load.wait_for_writes(100)
    measured(
        f"{what}: keys not writable for",
        f"p50 {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s; failed commands of a stock"
        f" client {len(pulses.failed)}",
    )
    assert find_violations(load.writes, load.reads + load.read_back()) == []
    assert pulses.lost() == []
    assert gaps[-1] < _OUTAGE_S_MAX

    mend(victim)
    cluster.wait_quiet("z")

    assert find_violations(load.writes, load.read_back()) == []


def test_two_of_three_agents_lost_and_back_lose_no_acknowledged_write(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    first, second, _ = cluster.agents.values()
    with Workload(cluster, "z") as load:
        load.wait_for_writes(300)
        first.kill()
        second.kill()
        first.start()
        second.start()
        cluster.wait_quiet("z")
        load.wait_for_writes(300)

    assert find_violations(load.writes, load.reads + load.read_back()) == []


def test_a_write_that_no_other_copy_has_is_not_answered(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=4)
    client = cluster.client("z")
    client.set("key", "before")
    port = client.get_node_from_key("key").port
    others = [each for each in cluster.agents.values() if cluster.port("z", each.name) != port]
    for other in others:
        other.pause()
    with redis.Redis(port=port, socket_timeout=1, retry=None) as direct:
        with pytest.raises(redis.TimeoutError):
            direct.set("key", "nobody knows")
        with pytest.raises(redis.TimeoutError):
            direct.get("key")

    for other in others:
        other.resume()

    assert client.set("key", "after") is True
    assert client.get("key") == b"after"


def test_without_a_majority_nothing_is_answered(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=4)
    client = cluster.client("z")
    keys = key_in_each(4)
    for key in keys:
        client.set(key, "before")
    first, second, third = cluster.agents.values()
    port = cluster.port("z", third.name)
    first.kill()
    second.kill()
    with redis.Redis(port=port, socket_timeout=20) as direct:
        wait_until(lambda: _is_refused(direct, keys), "refusal of every key", 60)
        with pytest.raises(RedisError):
            direct.get(keys[0])
        with pytest.raises(RedisError):
            direct.set(keys[0], "after")

        first.start()
        cluster.wait_available("z")

    assert {client.get(key) for key in keys} == {b"before"}


def test_pipelined_commands_do_not_wait_for_a_primary_one_after_the_other(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=2)
    cluster.apply_zone("z", partitions=4)
    lost, left = cluster.agents.values()
    port = cluster.port("z", left.name)
    lost.kill()
    with redis.Redis(port=port, socket_timeout=60) as direct:
        wait_until(lambda: _is_refused(direct, key_in_each(4)), "refusal of every key", 60)
        began = time.monotonic()

        assert _is_refused(direct, key_in_each(4) * 10)

    assert time.monotonic() - began < 15  # one after the other they would take 200 s


def _is_refused(direct: redis.Redis, keys: list[str]) -> bool:
    """Whether no key is answered by this agent: neither is it their primary nor is anybody else."""
    pipeline = direct.pipeline(transaction=False)
    for key in keys:
        pipeline.get(key)
    answers = pipeline.execute(raise_on_error=False)
    return all(isinstance(each, ClusterDownError) for each in answers)


def test_a_table_that_names_an_ended_agent_is_held_back_for_a_moment(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    cluster.wait_quiet("z")
    ended, other = cluster.port("z", "agent-1"), cluster.port("z", "agent-2")
    cluster.operator.kill()  # so nobody names another primary
    with RawConnection(HOST, other, 10) as connection:

        def is_held_back() -> bool:
            began = time.monotonic()
            connection.ask([b"CLUSTER", b"SLOTS"])
            return time.monotonic() - began > 0.2

        cluster.agents["agent-1"].kill()
        wait_until(is_held_back, "a table that was waited for", 5)
        # Then it is told as it is: no library can do without one.
        assert b":%d\r\n" % ended in connection.ask([b"CLUSTER", b"SLOTS"])
