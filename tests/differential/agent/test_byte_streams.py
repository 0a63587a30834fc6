"""Streams that are no clean commands: answered, and closed, as a real Redis does it."""

from random import Random

import pytest

from quorate_differential.byte_streams import ODD_STREAMS, random_stream
from quorate_differential.exemptions import is_exempt_stream
from quorate_differential.local_endpoint import LocalEndpoint
from quorate_differential.raw_replies import RawConnection, encode_command

pytestmark = pytest.mark.needs("redis-server")

MUTATED = 2_000
# A clean start, so that what earlier streams wrote does not show.
START = encode_command([b"FLUSHALL"])


def _theirs(port: int, stream: bytes) -> bytes:
    with RawConnection("127.0.0.1", port) as redis:
        return redis.exchange(START + stream)


@pytest.mark.parametrize("stream", ODD_STREAMS, ids=lambda stream: repr(stream[:30]))
def test_an_odd_stream_is_answered_as_by_redis(redis_port: int, stream: bytes) -> None:
    theirs = _theirs(redis_port, stream)
    for chunk_bytes in (1 << 18, 4096, 7, 1):
        ours = LocalEndpoint().exchange(START + stream, chunk_bytes)

        assert ours == theirs or is_exempt_stream(stream), f"in chunks of {chunk_bytes}"


def test_mutated_streams_are_answered_as_by_redis(redis_port: int) -> None:
    random = Random(1)
    for _ in range(MUTATED):
        stream = random_stream(random)
        theirs = _theirs(redis_port, stream)
        for chunk_bytes in (1 << 16, random.randint(1, 40)):
            ours = LocalEndpoint().exchange(START + stream, chunk_bytes)

            assert ours == theirs or is_exempt_stream(stream), (
                f"{stream!r} in chunks of {chunk_bytes}"
            )
