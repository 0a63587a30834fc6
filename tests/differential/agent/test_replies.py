"""Our replies beside those of a real Redis: the same random streams, compared byte by byte."""

import time
from random import Random

import pytest

from quorate_agent.resp.replies import VALUE_BYTES_MAX
from quorate_agent.resp.session import Session
from quorate_agent.resp.tables.table import COMMANDS
from quorate_differential.command_streams import random_command
from quorate_differential.exemptions import same_reply
from quorate_differential.local_endpoint import LocalEndpoint
from quorate_differential.raw_replies import RawConnection, encode_command

pytestmark = pytest.mark.needs("redis-server")

STREAMS = 40
STREAM_COMMANDS = 400
EXPIRY_S = 10.0


def _compared(
    redis: RawConnection, endpoint: LocalEndpoint, session: Session, commands: list[list[bytes]]
) -> None:
    theirs = redis.ask_all(commands)
    for index, (command, expected) in enumerate(zip(commands, theirs, strict=True)):
        ours = endpoint.answer(session, list(command))

        assert same_reply(command, expected, ours), (
            f"command {index} of the stream: {command}\n"
            f" before it: {commands[max(index - 3, 0) : index]}\n"
            f" Redis: {expected[:400]!r}\n    us: {ours[:400]!r}"
        )


@pytest.mark.parametrize("seed", range(STREAMS))
def test_a_random_stream_gets_the_replies_of_redis(redis_port: int, seed: int) -> None:
    random = Random(seed)
    endpoint = LocalEndpoint()
    session = endpoint.connect()
    stream = [random_command(random) for _ in range(STREAM_COMMANDS)]
    # Redis counts what has expired until it stumbles on it: looking at every key clears that.
    looked = [
        words
        for command in stream
        for words in (
            *([[b"SCAN", b"0", b"COUNT", b"100000"]] if _counts_keys(command) else ()),
            command,
        )
    ]
    with RawConnection("127.0.0.1", redis_port) as redis:
        version = b"3" if seed % 2 else b"2"
        _compared(redis, endpoint, session, [[b"HELLO", version], [b"FLUSHALL"], *looked])


def _counts_keys(command: list[bytes]) -> bool:
    return command[0].upper() in (b"DBSIZE", b"CLUSTER")


FIXED = [
    command.split()
    for command in (
        b"CLIENT",
        b"CLIENT LIST TYPE nope",
        b"CLIENT LIST TYPE pubsub",
        b"CLIENT LIST TYPE",
        b"CLIENT LIST ID",
        b"CLIENT LIST ID x",
        b"CLIENT LIST ID 0",
        b"CLIENT LIST ID 999999",
        b"CLIENT LIST nope",
        b"CLIENT INFO nope",
        b"CLIENT ID nope",
        b"CLIENT SETNAME",
        b"CLIENT TRACKINGINFO",
        b"CLIENT GETREDIR",
        b"CLIENT CACHING YES",
        b"CLIENT CACHING",
        b"CLIENT TRACKING",
        b"CLIENT TRACKING MAYBE",
        b"CLIENT TRACKING ON NOPE",
        b"CLIENT TRACKING OFF NOPE",
        b"CLIENT TRACKING OFF",
        b"CLIENT TRACKING ON REDIRECT",
        b"CLIENT TRACKING ON REDIRECT x",
        b"CLIENT TRACKING ON REDIRECT 0",
        b"CLIENT TRACKING ON REDIRECT 999999",
        b"CLIENT TRACKING ON PREFIX a",
        b"CLIENT TRACKING ON BCAST OPTIN",
        b"CLIENT TRACKING ON OPTIN OPTOUT",
        b"CLIENT TRACKING ON OPTIN",
        b"CLIENT TRACKING ON OPTOUT",
        b"CLIENT TRACKING ON BCAST",
        b"CLIENT CACHING NO",
        b"CLIENT CACHING MAYBE",
        b"CLIENT CACHING YES",
        b"CLIENT GETREDIR",
        b"CLIENT TRACKING ON OPTIN NOLOOP",
        b"CLIENT TRACKINGINFO",
        b"CLIENT TRACKING ON",
        b"CLIENT TRACKING ON optout",
        b"CLIENT CACHING YES",
        b"CLIENT CACHING no",
        b"CLIENT TRACKING OFF",
        b"CLIENT TRACKING ON BCAST PREFIX b PREFIX a",
        b"CLIENT TRACKING ON BCAST PREFIX aa",
        b"CLIENT TRACKING ON BCAST PREFIX a",
        b"CLIENT TRACKING ON BCAST PREFIX c PREFIX cc",
        b"CLIENT TRACKING ON",
        b"CLIENT TRACKING ON BCAST PREFIX c NOLOOP",
        b"CLIENT TRACKINGINFO",
        b"CLIENT TRACKING ON BCAST",
        b"CLIENT TRACKING ON BCAST",
        b"CLIENT TRACKINGINFO",
        b"RESET",
        b"CLIENT TRACKINGINFO",
        b"PUBSUB",
        b"PUBSUB CHANNELS",
        b"PUBSUB CHANNELS *",
        b"PUBSUB CHANNELS a b",
        b"PUBSUB NUMSUB",
        b"PUBSUB NUMSUB a b",
        b"PUBSUB NUMPAT",
        b"PUBSUB NUMPAT a",
        b"PUBSUB SHARDCHANNELS",
        b"PUBSUB SHARDCHANNELS a",
        b"PUBSUB shardchannels a b",
        b"PUBSUB SHARDNUMSUB",
        b"PUBSUB SHARDNUMSUB a",
        b"PUBSUB NOPE",
        b"CLUSTER",
        b"CLUSTER KEYSLOT",
        b"CLUSTER MYID nope",
        b"CLUSTER COUNTKEYSINSLOT",
        b"COMMAND COUNT nope",
        b"COMMAND LIST nope",
        b"COMMAND LIST FILTERBY",
        b"COMMAND LIST FILTERBY NOPE x",
        b"COMMAND LIST FILTERBY MODULE x",
        b"COMMAND LIST FILTERBY ACLCAT nope",
        b"COMMAND LIST FILTERBY PATTERN GETDE*",
        b"COMMAND LIST FILTERBY PATTERN cluster|keys*",
        b"COMMAND DOCS nope",
        b"COMMAND GETKEYS",
        b"COMMAND GETKEYS GET",
        b"COMMAND GETKEYS PING x",
        b"COMMAND GETKEYS NOPE x",
        b"COMMAND GETKEYS CLIENT NOPE",
        b"COMMAND GETKEYS CLIENT ID",
        b"COMMAND GETKEYS MSET a b c",
        b"COMMAND GETKEYS COPY a b REPLACE",
        b"COMMAND GETKEYS RENAME a b",
        b"COMMAND GETKEYS OBJECT ENCODING k",
        b"COMMAND GETKEYS MEMORY USAGE k SAMPLES 0",
        b"COMMAND GETKEYS OBJECT NOPE k",
        b"COMMAND GETKEYS HSET k f v",
        b"COMMAND LIST FILTERBY PATTERN hincr*",
        b"OBJECT",
        b"OBJECT NOPE",
        b"OBJECT ENCODING",
        b"OBJECT encoding none",
        b"MEMORY",
        b"MEMORY USAGE",
        b"MEMORY USAGE none",
        b"RANDOMKEY",
        b"RANDOMKEY x",
        b"CONFIG",
        b"CONFIG GET",
        b"CONFIG GET save",
        b"CONFIG GET SAVE s[a]ve",
        b"CONFIG GET cluster-enabled",
        b"CONFIG GET nope*",
        b"CONFIG SET slowlog-log-slower-than 10000 slowlog-max-len 128",
        b"CONFIG GET SLOWLOG-max-len",
        b"CONFIG SET",
        b"CONFIG SET slowlog-max-len",
        b"CONFIG SET slowlog-max-len 1 x",
        b"CONFIG SET slowlog-max-len x",
        b"CONFIG SET slowlog-max-len +1",
        b"CONFIG SET slowlog-log-slower-than -2",
        b"CONFIG SET slowlog-max-len 1 SLOWLOG-max-len 2",
        b"CONFIG SET slowlog-max-len 1 slowlog-log-slower-than x",
        b"CONFIG SET databases 1 Nope 1",
        b"CONFIG SET Nope 1 databases 1",
        b"CONFIG GET slowlog-l*",
        b"CONFIG GET slowlog-m*",
        b"CONFIG SET SLOWLOG-max-len 7 slowlog-log-slower-than -1",
        b"CONFIG GET slowlog-l*",
        b"CONFIG GET slowlog-m*",
        b"SLOWLOG",
        b"SLOWLOG NOPE",
        b"SLOWLOG RESET x",
        b"SLOWLOG RESET",
        b"SLOWLOG LEN",
        b"SLOWLOG LEN x",
        b"SLOWLOG GET",
        b"SLOWLOG get 3",
        b"SLOWLOG GET -2",
        b"SLOWLOG GET x",
        b"SLOWLOG GET 1 2",
        b"SLOWLOG HELP",
        b"INFO nope",
        b"INFO cluster",
        b"INFO CLUSTER nope",
        b"TIME x",
        b"DBSIZE x",
        b"KEYS",
        b"KEYS a b",
        b"FLUSHDB x",
        b"FLUSHDB SYNC ASYNC",
        b"READONLY x",
        b"WAIT 0",
        b"SCAN",
        b"SCAN 0 MATCH",
        b"SCAN -1",
        b"SCAN +0",
        b"SCAN 0 COUNT 9223372036854775808",
        b"SCAN 0 TYPE",
        b"HELLO 3 SETNAME before NOPE",
        b"CLIENT GETNAME",
        b"RESET",
        b"CLIENT GETNAME",
    )
]


@pytest.mark.parametrize("version", [b"2", b"3"])
def test_commands_without_keys_are_answered_as_by_redis(redis_port: int, version: bytes) -> None:
    endpoint = LocalEndpoint()
    with RawConnection("127.0.0.1", redis_port) as redis:
        session = endpoint.connect()

        commands = [words for fixed in FIXED for words in ([b"HELLO", version], fixed)]
        _compared(redis, endpoint, session, [[b"FLUSHALL"], *commands])


def test_every_command_has_the_description_of_redis(redis_port: int) -> None:
    endpoint = LocalEndpoint()
    names = [name for name, command in COMMANDS.items() if not command.has_subcommands]
    names += [
        child.name
        for command in COMMANDS.values()
        for child in command.subcommands.values()
        # Redis has them since 7.2 and 8.2.
        if child.name not in (b"client|setinfo", b"client|maint_notifications")
    ]
    with RawConnection("127.0.0.1", redis_port) as redis:
        for version in (b"2", b"3"):
            described = [[b"COMMAND", b"INFO", name] for name in names]
            _compared(redis, endpoint, endpoint.connect(), [[b"HELLO", version], *described])


def test_what_has_just_expired_is_gone_for_every_command(redis_port: int) -> None:
    keys = [b"{e}%d" % index for index in range(24)]
    setters = [
        [b"PSETEX", keys[0], b"1", b"v"],
        [b"SET", keys[1], b"v", b"PX", b"1"],
        *[[b"SET", key, b"5", b"PX", b"2"] for key in keys[2:]],
    ]
    looks = [
        [b"GET", keys[0]],
        [b"EXISTS", *keys[:4]],
        [b"TTL", keys[1]],
        [b"PTTL", keys[2]],
        [b"TYPE", keys[3]],
        [b"STRLEN", keys[4]],
        [b"INCR", keys[5]],
        [b"TTL", keys[5]],
        [b"APPEND", keys[6], b"x"],
        [b"TTL", keys[6]],
        [b"SETNX", keys[7], b"x"],
        [b"SET", keys[8], b"x", b"XX"],
        [b"SET", keys[9], b"x", b"GET", b"KEEPTTL"],
        [b"TTL", keys[9]],
        [b"PERSIST", keys[10]],
        [b"EXPIRE", keys[11], b"100"],
        [b"DEL", *keys[12:15]],
        [b"GETDEL", keys[15]],
        [b"GETEX", keys[16], b"EX", b"100"],
        [b"MGET", *keys[16:20]],
        [b"SCAN", b"0", b"COUNT", b"1000"],
        [b"DBSIZE"],
    ]
    endpoint = LocalEndpoint()
    session = endpoint.connect()
    with RawConnection("127.0.0.1", redis_port) as redis:
        _compared(redis, endpoint, session, [[b"FLUSHALL"], *setters])
        deadline = time.monotonic() + EXPIRY_S
        asked = [b"EXISTS", *keys]
        while redis.ask(asked) != b":0\r\n" or endpoint.answer(session, asked) != b":0\r\n":
            assert time.monotonic() < deadline

        _compared(redis, endpoint, session, looks)


def test_a_value_may_have_64_mib_and_not_a_byte_more(redis_port: int) -> None:
    endpoint = LocalEndpoint()
    session = endpoint.connect()
    longest = b"x" * VALUE_BYTES_MAX
    with RawConnection("127.0.0.1", redis_port, timeout_s=60) as redis:
        commands = [
            [b"SET", b"big", longest],
            [b"STRLEN", b"big"],
            [b"APPEND", b"big", b""],
            [b"APPEND", b"big", b"y"],
            [b"STRLEN", b"big"],
            [b"GETDEL", b"big"],
        ]
        _compared(redis, endpoint, session, commands)
        too_long = encode_command([b"SET", b"big", longest + b"y"])
        told = endpoint.exchange(too_long + encode_command([b"PING"]))
        bound = (VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX)
        assert told == b"-ERR string of %d bytes: at most %d may be sent\r\n+PONG\r\n" % bound
