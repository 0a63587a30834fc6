"""Stock clients that subscribe to `__quorate__:events` at an agent, through changes and losses."""

import json
import socket
import threading
import time
from typing import Any, Self

import hiredis
import pytest
import redis

from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.told_events import Follower, Told, assert_whole

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

CHANNEL = "__quorate__:events"


class Subscriber(Follower):
    """redis-py's own publish/subscribe at one agent; it connects again by itself."""

    def __init__(self, cluster: Cluster, zone: str, agent: str, protocol: int) -> None:
        super().__init__()
        port = cluster.port(zone, agent)
        self._client = redis.Redis(
            host="127.0.0.1", port=port, protocol=protocol, decode_responses=True
        )
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        self.add_road(self._read)

    def __enter__(self) -> Self:
        self._pubsub.subscribe(CHANNEL)
        return super().__enter__()

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        self._pubsub.close()
        self._client.close()

    def _read(self) -> None:
        while not self.stop.is_set():
            try:
                message = self._pubsub.get_message(timeout=0.2)
            except CLIENT_ERRORS:  # the agent is away
                self.stop.wait(0.1)
                continue
            if message is not None:
                self.told.append(json.loads(message["data"]))


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_subscriber_sees_migrations_whole_and_the_state_after_every_gap(
    start_cluster: StartCluster, protocol: int
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    cluster.wait_quiet("z")
    with Subscriber(cluster, "z", "agent-1", protocol) as subscriber:
        first = subscriber.wait("State")
        assert (first["zone"], first["state"]["phase"]) == ("z", "Available")

        cluster.add_agent()
        subscriber.wait("ZoneRebalanced")
        assert_whole(subscriber.told)

        count = len(subscriber.told)
        cluster.operator.kill()
        subscriber.wait("MasterLost", count)
        cluster.operator.start()
        again = subscriber.wait("State", count)
        assert again["state"]["available"] == 16

        cluster.wait_online()
        count = len(subscriber.told)
        cluster.agents["agent-1"].kill()
        cluster.agents["agent-1"].start()
        back = subscriber.wait("State", count)
        assert back["message"].startswith(f"{back['state']['phase']}: as agent-1 knows it")
        cluster.wait_quiet("z")


def test_replies_stay_whole_and_in_order_between_what_is_pushed(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    cluster.wait_quiet("z")
    reader = hiredis.Reader()
    pushed: list[Told] = []
    with socket.create_connection(("127.0.0.1", cluster.port("z", "agent-1")), 20) as client:

        def reply() -> Any:
            while True:
                found = reader.gets()
                if found is False:
                    reader.feed(client.recv(65536))
                elif isinstance(found, hiredis.PushNotification):
                    if found[0] == b"message":
                        pushed.append(json.loads(found[2]))
                else:
                    return found

        client.sendall(_command(b"HELLO", b"3") + _command(b"SUBSCRIBE", CHANNEL.encode()))
        reply()
        adding = threading.Thread(target=cluster.add_agent)
        adding.start()
        rounds = 0
        deadline = time.monotonic() + 60
        while not any(each["reason"] == "ZoneRebalanced" for each in pushed):
            assert time.monotonic() < deadline, pushed[-3:]
            # Writes wait for copies, the echo behind them waits for their replies.
            keys = [b"key-%d-%d" % (rounds, number) for number in range(8)]
            sent = [_command(b"SET", key, b"x") + _command(b"ECHO", key) for key in keys]
            client.sendall(b"".join(sent))
            for key in keys:
                written = reply()
                assert written == b"OK" or "MOVED" in str(written)
                assert reply() == key
            rounds += 1
        adding.join()
    assert_whole(pushed)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
