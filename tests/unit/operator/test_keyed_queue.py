"""Keys of objects: each once, never in two hands, later again after a failure."""

import asyncio

import pytest

from quorate_operator.process import keyed_queue
from quorate_operator.process.keyed_queue import KeyedQueue


async def taken(queue: KeyedQueue[str], within_s: float = 2.0) -> str:
    async with asyncio.timeout(within_s):
        return await queue.take()


async def test_a_key_that_is_added_often_is_handed_out_once_in_the_order_of_its_first_time() -> (
    None
):
    queue = KeyedQueue[str]()
    for key in ("a", "b", "a", "a"):
        queue.add(key)

    assert len(queue) == 2
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    assert len(queue) == 0


async def test_a_queue_is_not_idle_while_a_key_was_never_taken() -> None:
    queue = KeyedQueue[str]()
    assert queue.is_idle

    queue.add("a")

    assert not queue.is_idle
    key = await taken(queue)
    queue.done(key)
    assert queue.is_idle


async def test_a_key_that_was_never_taken_goes_before_those_that_were() -> None:
    queue = KeyedQueue[str]()
    for key in ("a", "b"):
        queue.add(key)
        await taken(queue)
        queue.done(key)
    for key in ("a", "b", "c", "d"):
        queue.add(key)

    assert len(queue) == 4
    order = []
    for _ in range(4):
        order.append(await taken(queue))
        queue.done(order[-1])
    assert order == ["c", "d", "a", "b"]

    queue.forget("b")  # the object is gone; another one has its name
    for key in ("a", "b"):
        queue.add(key)
    assert [await taken(queue), await taken(queue)] == ["b", "a"]


async def test_a_key_that_is_added_while_it_is_in_hand_comes_again_and_only_then() -> None:
    queue = KeyedQueue[str]()
    queue.add("a")
    assert await taken(queue) == "a"

    queue.add("a")
    assert len(queue) == 0  # no second worker gets it
    queue.done("a")

    assert await taken(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_failure_brings_the_key_back_after_ever_longer_delays_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_queue, "RETRY_S", 0.001)
    monkeypatch.setattr(keyed_queue, "RETRY_MAX_S", 0.003)
    queue = KeyedQueue[str]()
    queue.add("a")
    delays = []
    for _ in range(4):
        assert await taken(queue) == "a"
        delays.append(queue.failed("a"))
    assert delays == [0.001, 0.002, 0.003, 0.003]

    assert await taken(queue) == "a"
    queue.done("a")
    queue.add("a")
    await taken(queue)

    assert queue.failed("a") == 0.001


async def test_what_changes_does_not_wait_for_the_back_off() -> None:
    queue = KeyedQueue[str](jitter=lambda: 1_000)
    queue.add("a")
    await taken(queue)
    queue.failed("a")

    queue.add("a")

    assert await taken(queue) == "a"


async def test_what_is_merely_seen_again_waits_for_the_back_off_and_only_for_that() -> None:
    queue = KeyedQueue[str](jitter=lambda: 1_000)
    queue.add("a")
    await taken(queue)
    queue.failed("a")
    queue.add_later("b", 1_000)

    queue.add_in_turn("a")
    queue.add_in_turn("b")

    assert len(queue) == 1
    assert await taken(queue) == "b"
    queue.close()


async def test_a_key_that_was_added_while_it_failed_comes_at_once() -> None:
    queue = KeyedQueue[str](jitter=lambda: 1_000)
    queue.add("a")
    await taken(queue)
    queue.add("a")

    queue.failed("a")

    assert await taken(queue) == "a"


async def test_of_two_later_times_the_earlier_one_counts() -> None:
    queue = KeyedQueue[str]()
    queue.add_later("a", 60)
    queue.add_later("a", 0.001)
    queue.add_later("a", 60)

    assert await taken(queue) == "a"


async def test_a_key_that_is_forgotten_does_not_come_back() -> None:
    queue = KeyedQueue[str]()
    queue.add("a")
    await taken(queue)
    queue.failed("a")
    queue.forget("a")
    queue.add_later("b", keyed_queue.RETRY_S * 2)

    assert await taken(queue) == "b"
    queue.close()


async def test_a_key_that_failed_is_known_to_back_off_until_it_is_taken() -> None:
    queue = KeyedQueue[str]()
    queue.add("a")
    await queue.take()
    assert not queue.is_backing_off("a")

    queue.failed("a")

    assert queue.is_backing_off("a")
    assert not queue.is_backing_off("b")
    async with asyncio.timeout(10):
        await queue.take()
    assert not queue.is_backing_off("a")
    queue.done("a")
    queue.add_later("a", 60)  # awaited, and nothing went wrong
    assert not queue.is_backing_off("a")
    queue.close()
