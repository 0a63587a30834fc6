"""Clients that know nothing of a change: the agent that was primary asks the new one for them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from quorate.facts.keyspace import key_partition
from quorate_cluster.background import Background
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import RawConnection

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

PARTITIONS = 8
PER_PARTITION = 4
EVERY_S = 0.002


class _Counting(Background):
    """One connection per key, to the agent that was primary first, which adds 1 for ever and
    follows no redirection."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.replies: dict[bytes, list[bytes]] = {key: [] for key in _keys()}
        self.redirected: set[bytes] = set()
        self.home: dict[bytes, str] = {}
        ports = {agent: cluster.port("z", agent) for agent in cluster.agents}
        for key in self.replies:
            self.home[key] = next(agent for agent, port in ports.items() if _serves(port, key))
            self.add_road(partial(self._count, key, ports[self.home[key]]))

    def _count(self, key: bytes, port: int) -> None:
        with RawConnection("127.0.0.1", port) as connection:
            while not self.stop.is_set():
                reply = connection.ask([b"INCR", key])
                if reply.startswith(b"-MOVED"):
                    self.redirected.add(key)
                    return
                self.replies[key].append(reply)
                time.sleep(EVERY_S)


def _keys() -> list[bytes]:
    """Some keys of each partition."""
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    number = 0
    while any(len(keys) < PER_PARTITION for keys in found.values()):
        key = b"counter-%d" % number
        of_partition = found[key_partition(key, PARTITIONS)]
        if len(of_partition) < PER_PARTITION:
            of_partition.append(key)
        number += 1
    return [key for keys in found.values() for key in keys]


def _serves(port: int, key: bytes) -> bool:
    with RawConnection("127.0.0.1", port) as connection:
        return not connection.ask([b"GET", key]).startswith(b"-MOVED")


def _moved_keys(cluster: Cluster, counting: _Counting) -> list[bytes]:
    """Keys that agent-4 serves by now."""
    port = cluster.port("z", "agent-4")
    return [key for key in counting.replies if _serves(port, key)]


def _wait_moved(cluster: Cluster, counting: _Counting) -> list[bytes]:
    wait_until(lambda: "agent-4" in cluster.zone("z")["status"]["ports"], "clients' port")
    # All keys of at least one partition: it may become primary between two questions.
    return wait_until(
        lambda: len(found := _moved_keys(cluster, counting)) >= PER_PARTITION and found,
        "a partition moved to agent-4",
    )


def _wait_redirected(counting: _Counting, keys: list[bytes]) -> None:
    wait_until(
        lambda: counting.redirected >= set(keys),
        "redirection of every key that moved",
        30,
        lambda: sorted(set(keys) - counting.redirected),
    )


def _consecutive(replies: list[bytes]) -> bool:
    return replies == [b":%d\r\n" % (number + 1) for number in range(len(replies))]


def test_an_agent_that_lost_a_primary_asks_the_new_one_before_it_redirects(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    with _Counting(cluster) as counting:
        cluster.add_agent()
        _wait_redirected(counting, _wait_moved(cluster, counting))

    forwarded = sum(
        sum(agent.metrics("quorate_commands_forwarded_total")) for agent in cluster.agents.values()
    )
    measured("forwarded after a hand-over", f"{forwarded:.0f} commands")
    assert forwarded > 50
    assert {key: r[-3:] for key, r in counting.replies.items() if not _consecutive(r)} == {}
    client = cluster.client("z")
    for key, replies in counting.replies.items():
        assert int(client.get(key)) == len(replies)
    # What the agents remember of forwarded requests is none of the clients' keys.
    assert set(client.scan_iter()) == set(counting.replies)  # after a hand-over some come twice
    counts = []
    for agent in cluster.agents:
        with RawConnection("127.0.0.1", cluster.port("z", agent)) as connection:
            counts.append(int(connection.ask([b"DBSIZE"])[1:-2]))
    assert sum(counts) == len(counting.replies)


def test_a_forwarded_command_is_executed_once_when_its_new_primary_dies(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    with _Counting(cluster) as counting:
        newcomer = cluster.add_agent()
        moved = _wait_moved(cluster, counting)
        newcomer.kill()
        _wait_redirected(counting, moved)
        cluster.wait_available("z")

    assert {key: r[-3:] for key, r in counting.replies.items() if not _consecutive(r)} == {}
    client = cluster.client("z")
    assert {key: int(client.get(key)) for key in counting.replies} == {
        key: len(replies) for key, replies in counting.replies.items()
    }


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what a test has opened, however it ends."""
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("resp", [b"2", b"3"])
def test_all_kinds_of_commands_are_forwarded_with_their_own_replies(
    start_cluster: StartCluster, resp: bytes, stack: ExitStack
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    client = cluster.client("z")
    counting = _Counting(cluster)
    keys = list(counting.replies)
    for key in keys:
        client.set(key, b"0")
    connections = {}
    for key in keys:
        home = cluster.port("z", counting.home[key])
        connections[key] = stack.enter_context(RawConnection("127.0.0.1", home))
        connections[key].ask([b"HELLO", resp])
        assert connections[key].ask([b"WATCH", key]) == b"+OK\r\n"
    cluster.add_agent()
    moved = _wait_moved(cluster, counting)
    key = moved[0]
    connection = connections[key]
    other = b"{%b}other" % key
    near = next(
        each
        for each in keys
        if each != key and key_partition(each, PARTITIONS) == key_partition(key, PARTITIONS)
    )
    null = b"_\r\n" if resp == b"3" else b"$-1\r\n"
    no_array = b"_\r\n" if resp == b"3" else b"*-1\r\n"

    # A transaction whose watched row came along unchanged; then one that was overtaken.
    assert connection.ask([b"MULTI"]) == b"+OK\r\n"
    assert connection.ask([b"INCR", key]) == b"+QUEUED\r\n"
    assert connection.ask([b"GET", other]) == b"+QUEUED\r\n"
    assert connection.ask([b"EXEC"]) == b"*2\r\n:1\r\n%b" % null
    # One of two slots, which are of one partition.
    replies = connection.ask_all([[b"MULTI"], [b"GET", key], [b"APPEND", near, b"x"], [b"EXEC"]])
    assert replies[-1] == b"*2\r\n$1\r\n1\r\n:2\r\n"
    second = moved[-1]
    client.set(second, b"7")
    assert connections[second].ask([b"MULTI"]) == b"+OK\r\n"
    assert connections[second].ask([b"INCR", second]) == b"+QUEUED\r\n"
    assert connections[second].ask([b"EXEC"]) == no_array

    assert connection.ask([b"GET", key]) == b"$1\r\n1\r\n"
    assert connection.ask([b"SET", key, b"2", b"NX"]) == null
    assert connection.ask([b"SETNX", other, b"x"]) == b":1\r\n"
    assert connection.ask([b"GETDEL", other]) == b"$1\r\nx\r\n"
    assert connection.ask([b"GETDEL", other]) == null
    assert connection.ask([b"APPEND", key, b"x"]) == b":2\r\n"
    assert connection.ask([b"INCR", key]).startswith(b"-ERR value is not an integer")
    assert connection.ask([b"MGET", key, other]) == b"*2\r\n$2\r\n1x\r\n%b" % null
    # Behind each other in one write, in their order.
    replies = connection.ask_all([[b"SET", key, b"%d" % n] for n in range(20)] + [[b"GET", key]])
    assert replies[-1] == b"$2\r\n19\r\n"
