"""Clients that cache what they read, while partitions move and agents are cut off or killed."""

import sys
from pathlib import Path

import pytest
from redis import Redis
from redis.cache import CacheConfig

from quorate_cluster import agent_without_farewell
from quorate_cluster.cached_reads import CachedReads
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import key_in_each
from quorate_cluster.processes import HOST
from quorate_cluster.proxied_cluster import ProxiedCluster, cuts_around
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import RawConnection

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

PARTITIONS = 16
HITS_MIN = 300
"""Before the next thing happens: else nothing was kept that could be too old."""


def _let_them_read(reads: CachedReads) -> None:
    """Until every key was written again and much was read from caches."""
    hits, before = reads.hits, reads.answered()
    wait_until(
        lambda: (
            reads.hits >= hits + HITS_MIN
            and all(value > before[key] for key, value in reads.answered().items())
        ),
        "reads from caches between writes of every key",
        60,
        lambda: (reads.hits - hits, reads.answered(), before),
    )


def _cut_off_for_long(cluster: ProxiedCluster, reads: CachedReads) -> None:
    """One agent, until the others serve all of its partitions; then it comes back."""
    agent = cluster.agent_with_most_primaries()
    cluster.proxy.cut(cuts_around(cluster, agent.name))
    cluster.wait_left(agent.name)
    cluster.wait_available("z")
    _let_them_read(reads)
    cluster.proxy.cut(())
    cluster.wait_quiet("z")


def test_no_cached_read_is_older_than_what_was_answered_before_it(measured: Measured) -> None:
    with ProxiedCluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS, storage="InMemory")
        with CachedReads(cluster, "z", PARTITIONS) as reads:
            _let_them_read(reads)
            cluster.add_agent()
            cluster.wait_quiet("z")
            _let_them_read(reads)
            _cut_off_for_long(cluster, reads)
            cluster.agent_with_most_primaries().kill()
            _let_them_read(reads)
    measured(
        "cached reads during a join, a cut and a kill", f"{reads.hits} of {reads.reads} from caches"
    )
    assert reads.too_old == []


@pytest.mark.parametrize("says_farewell", [True, False], ids=["sound", "without-farewell"])
def test_an_agent_that_is_cut_off_has_told_before_others_answer(says_farewell: bool) -> None:
    planted = (sys.executable, "-P", str(Path(agent_without_farewell.__file__)))
    with ProxiedCluster(agents=3, prefix=() if says_farewell else planted) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS)
        alone = cluster.agent_with_most_primaries().name
        with RawConnection("127.0.0.1", cluster.port("z", alone)) as connection:
            # Asked before it tracks: what waits for a primary is to be forgotten at once.
            keys = [
                key
                for key in key_in_each(PARTITIONS)
                if not connection.ask([b"GET", key.encode()]).startswith(b"-MOVED")
            ]
            assert keys
            _track(connection)
            for key in keys:
                assert connection.ask([b"GET", key.encode()]) == b"_\r\n"
            cluster.proxy.cut(cuts_around(cluster, alone))
            wait_until(lambda: cluster.primaries()[alone] == 0, "other primaries")
            others = cluster.client("z", first=[name for name in cluster.agents if name != alone])
            for key in keys:
                assert others.set(key, "new")
            # What was told is there already: in front of the answer to what is asked now.
            told = _told(connection)

    assert told == ({key.encode() for key in keys} if says_farewell else set())


def _track(connection: RawConnection) -> None:
    connection.ask([b"HELLO", b"3"])
    assert connection.ask([b"CLIENT", b"TRACKING", b"ON"]) == b"+OK\r\n"


def _told(connection: RawConnection) -> set[bytes]:
    """The keys that the agent has told by now."""
    frames = [connection.ask([b"PING"])]
    while frames[-1] != b"+PONG\r\n":
        frames.append(connection.read())
    return {key for frame in frames[:-1] for key in frame.split(b"\r\n")[5::2] if key}


def _primary(cluster: Cluster, key: bytes) -> str:
    """The agent that answers for the key: the one that does not redirect."""

    def found() -> str:
        for name in cluster.agents:
            with RawConnection("127.0.0.1", cluster.port("z", name)) as connection:
                if not connection.ask([b"GET", key]).startswith(b"-MOVED"):
                    return name
        return ""

    return wait_until(found, "primary")


def test_an_agent_that_was_frozen_tells_when_it_goes_on(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    client = cluster.client("z")
    client.set("k", "old")
    agent = cluster.agents[_primary(cluster, b"k")]
    with RawConnection("127.0.0.1", cluster.port("z", agent.name), timeout_s=30) as connection:
        _track(connection)
        assert connection.ask([b"GET", b"k"]) == b"$3\r\nold\r\n"
        agent.pause()
        cluster.wait_left(agent.name)
        agent.resume()
        assert connection.read() == b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"


def test_a_stock_client_of_one_agent_reads_from_its_cache_until_it_is_told(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=1)
    cluster.apply_zone("z", partitions=PARTITIONS)
    port = cluster.port("z", "agent-1")
    caches = Redis(HOST, port, protocol=3, cache_config=CacheConfig())
    with caches as caching, Redis(HOST, port) as other:
        other.set("k", "1")
        assert caching.get("k") == b"1"
        kept = caching.get_cache()
        assert kept is not None
        assert kept.size == 1
        other.set("k", "2")
        assert caching.get("k") == b"2"
        other.flushall()
        assert caching.get("k") is None
