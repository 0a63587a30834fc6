"""How many requests leave for the API server, and when."""

import asyncio

from quorate_operator.kube.token_bucket import HELD_MAX_S, TokenBucket


class Time:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def take(bucket: TokenBucket, count: int) -> None:
    for _ in range(count):
        await asyncio.wait_for(bucket.take(), 1)


async def test_a_burst_leaves_at_once_and_then_so_many_a_second() -> None:
    time = Time()
    bucket = TokenBucket(per_s=10, burst=5, clock=time)

    await take(bucket, 5)

    assert bucket.wait_s() == 0.1
    time.now_s += 0.25
    await take(bucket, 2)
    assert 0 < bucket.wait_s() <= 0.1
    time.now_s += 3600  # no more than a burst is saved up
    await take(bucket, 5)
    assert bucket.wait_s() == 0.1


async def test_nothing_leaves_while_the_server_asks_to_be_left_alone() -> None:
    time = Time()
    bucket = TokenBucket(per_s=10, burst=5, clock=time)

    bucket.hold(7)
    bucket.hold(3)

    assert bucket.wait_s() == 7
    time.now_s += 7
    assert bucket.wait_s() == 0
    bucket.hold(1e9)
    assert bucket.wait_s() == HELD_MAX_S


async def test_who_waits_for_a_token_gets_one_of_those_that_come() -> None:
    bucket = TokenBucket(per_s=200, burst=1)

    async with asyncio.timeout(10):
        await asyncio.gather(*(bucket.take() for _ in range(20)))

    assert bucket.wait_s() > 0
