"""Every command in RESP2 and in RESP3: replies of the types that Redis answers with."""

from contextlib import ExitStack

import pytest

from quorate_cluster.command_calls import all_names, call, keyed_names
from quorate_differential.local_endpoint import LocalEndpoint
from quorate_differential.raw_replies import RawConnection
from quorate_differential.reply_types import reads_like, taken_apart

pytestmark = pytest.mark.needs("redis-server")

SINCE_LATER = {"client|setinfo": "7.2", "client|maint_notifications": "8.4"}
"""Commands that the Redis beside us does not have."""

CALLS = {
    "multi": "MULTI",
    "ping": "PING; PING x",
    "echo": "ECHO x",
    "quit": "QUIT",
    "hello": "HELLO",
    "reset": "RESET",
    "select": "SELECT 0",
    "readonly": "READONLY",
    "readwrite": "READWRITE",
    "client|id": "CLIENT ID",
    "client|info": "CLIENT INFO",
    "client|list": "CLIENT LIST",
    "client|setname": "CLIENT SETNAME me",
    "client|getname": "CLIENT GETNAME; CLIENT SETNAME me; CLIENT GETNAME",
    "client|tracking": "CLIENT TRACKING ON BCAST PREFIX a; CLIENT TRACKINGINFO",
    "client|caching": "CLIENT TRACKING ON OPTIN; CLIENT CACHING YES; CLIENT TRACKINGINFO",
    "client|trackinginfo": "CLIENT TRACKINGINFO",
    "client|getredir": "CLIENT GETREDIR",
    "subscribe": "SUBSCRIBE __redis__:invalidate",
    "unsubscribe": "UNSUBSCRIBE; SUBSCRIBE __redis__:invalidate; UNSUBSCRIBE",
    "psubscribe": "PSUBSCRIBE __redis__:*",
    "punsubscribe": "PUNSUBSCRIBE; PSUBSCRIBE __redis__:*; PUNSUBSCRIBE __redis__:*",
    "pubsub|channels": "PUBSUB CHANNELS",
    "pubsub|numsub": "PUBSUB NUMSUB a b",
    "pubsub|numpat": "PUBSUB NUMPAT",
    "pubsub|shardchannels": "PUBSUB SHARDCHANNELS",
    "pubsub|shardnumsub": "PUBSUB SHARDNUMSUB a b",
    "command": "COMMAND",
    "command|count": "COMMAND COUNT",
    "command|docs": "COMMAND DOCS get",
    "command|getkeys": "COMMAND GETKEYS MSET a 1 b 2",
    "command|info": "COMMAND INFO get nope client",
    "command|list": "COMMAND LIST",
    "info": "INFO",
    "config|get": "CONFIG GET save",
    "config|set": "CONFIG SET slowlog-max-len 100",
    "slowlog|get": "SLOWLOG RESET; SLOWLOG GET",
    "slowlog|help": "SLOWLOG HELP",
    "slowlog|len": "SLOWLOG RESET; SLOWLOG LEN",
    "slowlog|reset": "SLOWLOG RESET",
    "time": "TIME",
    "dbsize": "DBSIZE",
    "scan": "SET a 1; SCAN 0",
    "randomkey": "RANDOMKEY; SET a 1; RANDOMKEY",
    "flushall": "FLUSHALL",
    "flushdb": "FLUSHDB",
    "keys": "SET a 1; KEYS *; KEYS b",
    "wait": "WAIT 0 1",
    "cluster|slots": "CLUSTER SLOTS",
    "cluster|shards": "CLUSTER SHARDS",
    "cluster|nodes": "CLUSTER NODES",
    "cluster|info": "CLUSTER INFO",
    "cluster|myid": "CLUSTER MYID",
    "cluster|keyslot": "CLUSTER KEYSLOT a",
    "cluster|countkeysinslot": "CLUSTER COUNTKEYSINSLOT 1",
}


def _words(name: str) -> list[list[bytes]]:
    if name in CALLS:
        return [part.encode().split() for part in CALLS[name].split(";")]
    found = call(name, name.encode())
    return [*found.before, *found.sent, *found.looks]


def test_no_command_is_left_out() -> None:
    assert {*CALLS, *keyed_names(), *SINCE_LATER} == all_names()


@pytest.mark.parametrize("version", [b"2", b"3"])
@pytest.mark.parametrize("name", sorted(all_names() - {*SINCE_LATER}))
def test_a_command_is_answered_with_the_types_of_redis(
    redis_port: int, name: str, version: bytes
) -> None:
    endpoint = LocalEndpoint()
    session = endpoint.connect()
    with RawConnection("127.0.0.1", redis_port) as redis:
        for words in ([b"HELLO", version], [b"FLUSHALL"], *_words(name)):
            theirs, ours = redis.ask(words), endpoint.answer(session, list(words))

            assert reads_like(taken_apart(ours), taken_apart(theirs)), (words, theirs, ours)


def test_subscriptions_are_counted_as_by_redis(redis_port: int) -> None:
    channel = b"__redis__:invalidate"
    asked = [
        [b"PUBSUB", b"CHANNELS"],
        [b"PUBSUB", b"CHANNELS", b"__redis__:*"],
        [b"PUBSUB", b"CHANNELS", b"other*"],
        [b"PUBSUB", b"NUMSUB", channel, b"other"],
        [b"PUBSUB", b"NUMPAT"],
    ]
    endpoint = LocalEndpoint()
    with ExitStack() as stack:
        listeners = [
            (stack.enter_context(RawConnection("127.0.0.1", redis_port)), endpoint.connect())
            for _ in range(3)
        ]
        redis, session = listeners[2]
        for number, words in enumerate(
            (
                [b"SUBSCRIBE", channel],
                [b"SUBSCRIBE", channel],
                [b"PSUBSCRIBE", b"__redis__:*"],
                [b"PSUBSCRIBE", b"__redis__:*"],
                [b"UNSUBSCRIBE", channel],
                [b"PUNSUBSCRIBE"],
            )
        ):
            listener, ours = listeners[number % 2]
            assert endpoint.answer(ours, list(words)) == listener.ask(words)
            for each in asked:
                assert endpoint.answer(session, list(each)) == redis.ask(each), (words, each)
