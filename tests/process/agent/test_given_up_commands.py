"""Commands whose clients wait no more, at agents that the network has cut off: told, never late."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.message import Message
from quorate_cluster.outage import key_in_each
from quorate_cluster.processes import HOST
from quorate_cluster.proxied_cluster import ProxiedCluster, cuts_around
from quorate_cluster.proxy import Frame, Verdict
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import RawConnection, encode_command

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

PARTITIONS = 8
LEASE_S = 2.0
BOUND_S = 5.0
ELECTED_S = 5.0
"""A lease ends, its holder is stuck for 2 s, and says so with the next report."""
SLACK_S = 3.0
"""For a machine that has more to do than this."""

UNKNOWN = b"-UNKNOWN"
NOBODY = b"-CLUSTERDOWN"


@pytest.fixture
def cluster() -> Iterator[ProxiedCluster]:
    with ProxiedCluster(agents=3) as started:
        started.apply_zone("z", partitions=PARTITIONS)
        yield started


def _served(cluster: ProxiedCluster, name: str) -> list[bytes]:
    """Keys, one of each partition that the agent is primary of."""
    with RawConnection(HOST, cluster.port("z", name)) as connection:
        keys = [key.encode() for key in key_in_each(PARTITIONS)]
        return [key for key in keys if not connection.ask([b"GET", key]).startswith(b"-MOVED")]


def _asked(port: int, command: list[bytes]) -> bytes:
    with RawConnection(HOST, port) as connection:
        return connection.ask(command)


def test_a_cut_off_agent_tells_in_time_that_nobody_knows(cluster: ProxiedCluster) -> None:
    alone = cluster.agent_with_most_primaries().name
    port = cluster.port("z", alone)
    key = _served(cluster, alone)[0]
    with RawConnection(HOST, port, 30) as writer, RawConnection(HOST, port, 30) as reader:
        cluster.proxy.cut(cuts_around(cluster, alone))
        began = time.monotonic()
        writer.send(encode_command([b"SET", key, b"1"]))
        read = reader.ask([b"GET", key])
        written = writer.read()
        waited = time.monotonic() - began
        cluster.proxy.cut(())
        cluster.wait_quiet("z")
        assert (written[:8], read[:12]) == (UNKNOWN, NOBODY)
        assert waited < LEASE_S + BOUND_S + SLACK_S
        for connection in (writer, reader):
            assert connection.ask([b"PING"]) == b"+PONG\r\n"
        client = cluster.client("z")
        assert client.set(key, "2")
        assert client.get(key) == b"2"


def test_keys_of_an_agent_that_reaches_no_other_are_written_elsewhere_at_the_first_election(
    cluster: ProxiedCluster,
) -> None:
    """The operator and clients reach every agent all the time."""
    stuck = cluster.agent_with_most_primaries().name
    others = [name for name in cluster.agents if name != stuck]
    keys = _served(cluster, stuck)
    ports = [cluster.port("z", name) for name in others]

    def is_written(key: bytes) -> bool:
        """Ask the others themselves: the stuck agent keeps what it has begun for its bound."""
        return any(_asked(port, [b"SET", key, b"2"]) == b"+OK\r\n" for port in ports)

    cluster.proxy.cut(pair for other in others for pair in ((stuck, other), (other, stuck)))
    wait_until(lambda: all(map(is_written, keys)), "written keys", ELECTED_S + SLACK_S)
    assert cluster.primaries()[stuck] == 0

    elections = [
        line for line in cluster.operator.log_tail(1000).splitlines() if "takes over" in line
    ]
    assert elections
    assert not [line for line in elections if f"{stuck} takes over" in line]
    cluster.proxy.cut(())
    cluster.wait_quiet("z")
    client = cluster.client("z", first=others)
    assert [client.get(key) for key in keys] == [b"2"] * len(keys)


def test_what_was_parked_when_its_client_closed_the_connection_is_not_executed(
    cluster: ProxiedCluster,
) -> None:
    """As a library does whose time limit is over: it closes, and asks the next primary."""
    alone = cluster.agent_with_most_primaries().name
    key = _served(cluster, alone)[0]
    cluster.proxy.cut(cuts_around(cluster, alone))
    wait_until(lambda: cluster.primaries()[alone] == 0, "other primaries")
    others = cluster.client("z", first=[name for name in cluster.agents if name != alone])
    with RawConnection(HOST, cluster.port("z", alone)) as connection:
        before = sum(cluster.agents[alone].metrics("quorate_commands_parked_total"))
        connection.send(encode_command([b"SET", key, b"late"]))
        wait_until(
            lambda: sum(cluster.agents[alone].metrics("quorate_commands_parked_total")) > before,
            "a parked command",
        )
    assert others.set(key, "new")
    cluster.proxy.cut(())  # well within the time for which commands are parked
    cluster.wait_quiet("z")
    with RawConnection(HOST, cluster.port("z", alone)) as connection:
        # It knows of other primaries: what was parked there would have been executed before this.
        assert connection.ask([b"GET", key]).startswith((b"-MOVED", b"$3\r\nnew"))
    assert others.get(key) == b"new"


def test_a_forwarded_command_that_the_network_held_back_is_not_executed(
    cluster: ProxiedCluster,
) -> None:
    asked: list[Message] = []
    answered: list[Message] = []

    def hold(source: str, target: str, frame: Frame) -> Verdict:
        if frame.kind is Forward:
            asked.append(frame.message)
            return Verdict.HOLD
        return Verdict.PASS

    def look(source: str, target: str, frame: Frame) -> Verdict:
        if frame.kind is Forwarded:
            answered.append(frame.message)
        return Verdict.PASS

    homes = {name: _served(cluster, name) for name in cluster.agents}
    cluster.proxy.set_judges(hold)
    newcomer = cluster.add_agent().name
    wait_until(lambda: cluster.primaries()[newcomer] > 0, "a primary at the newcomer")
    key = _write_everywhere(cluster, homes)  # partitions move one after the other
    assert asked
    others = cluster.client("z", first=[newcomer])
    assert others.set(key, "new")
    cluster.proxy.set_judges(look)
    cluster.proxy.release()
    wait_until(lambda: len(answered) == len(asked), "answers to what was held", 30)
    assert others.get(key) == b"new"


def _write_everywhere(cluster: ProxiedCluster, homes: dict[str, list[bytes]]) -> bytes:
    """Have "late" written where keys have been at home, until nobody knows what became of one."""
    with ExitStack() as opened:
        asked = [
            (opened.enter_context(RawConnection(HOST, cluster.port("z", home), 30)), key)
            for home, keys in homes.items()
            for key in keys
        ]
        began = time.monotonic()
        while time.monotonic() - began < 60:
            for connection, key in asked:
                if connection.ask([b"SET", key, b"late"]).startswith(UNKNOWN):
                    return key
    raise AssertionError("nothing was forwarded")
