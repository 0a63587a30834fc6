"""Our replies beside those of a real Redis: the same random streams, compared byte by byte."""

from random import Random

import pytest

from quorate_agent.resp.session import Session
from quorate_differential.command_streams import random_command
from quorate_differential.exemptions import same_reply
from quorate_differential.local_endpoint import LocalEndpoint
from quorate_differential.raw_replies import RawConnection

pytestmark = pytest.mark.needs("redis-server")

STREAMS = 40
COMMANDS = 400


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
    stream = [random_command(random) for _ in range(COMMANDS)]
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
