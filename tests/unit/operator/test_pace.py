"""How many requests are under way at a time: few while the API server is slow, ownership first."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quorate_loopback.waiting import until
from quorate_operator.kube.pace import FAST_S, FIRST, MOST, SLOW_S, Pace


class Server:
    """Requests that are answered when the test says so, at a time that it sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.is_lease_late = False
        self.pace = Pace(lambda: self.is_lease_late, lambda: self.now_s)
        self.under_way: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._failing: set[str] = set()

    def ask(self, name: str, rank: int = 0) -> asyncio.Task[None]:
        task = asyncio.create_task(self._ask(name, rank))
        self.tasks.append(task)
        return task

    async def _ask(self, name: str, rank: int) -> None:
        async with self.pace.request(rank):
            answered = asyncio.Event()
            self.under_way.append((name, answered))
            await answered.wait()
            if name in self._failing:
                raise TimeoutError

    async def answer_all(self, took_s: float, *, fails: bool = False) -> None:
        """Answer those that are under way now, so long after they left."""
        self.now_s += took_s
        answered, self.under_way = self.under_way, []
        for name, event in answered:
            if fails:
                self._failing.add(name)
            event.set()
        await self.turn()

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def names(self) -> list[str]:
        return [name for name, _ in self.under_way]

    async def grow(self, limit: int) -> None:
        while self.pace.limit < limit:
            for number in range(self.pace.limit):
                self.ask(f"{number}")
            await self.turn()
            await self.answer_all(FAST_S)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    yield server
    for task in server.tasks:
        task.cancel()
    await asyncio.gather(*server.tasks, return_exceptions=True)


async def test_fast_answers_let_more_requests_leave_up_to_a_bound(server: Server) -> None:
    for number in range(2 * FIRST):
        server.ask(str(number))
    await server.turn()
    assert len(server.under_way) == FIRST

    await server.answer_all(FAST_S)
    await server.answer_all(FAST_S)
    assert server.pace.limit > FIRST
    await server.grow(MOST)
    for number in range(2 * MOST):
        server.ask(str(number))
    await server.turn()

    assert len(server.under_way) == MOST


@pytest.mark.parametrize("fails", [False, True], ids=["slow", "no answer"])
async def test_one_slow_round_halves_the_limit_once_and_one_request_always_may_leave(
    server: Server, fails: bool
) -> None:
    await server.grow(16)
    for number in range(64):
        server.ask(str(number))
    await server.turn()

    await server.answer_all(FAST_S if fails else SLOW_S + 0.1, fails=fails)
    assert server.pace.limit == 8
    for _ in range(8):
        await server.answer_all(SLOW_S + 0.1)

    assert server.pace.limit == 1
    server.ask("another")
    await server.turn()
    assert len(server.under_way) == 1


async def test_few_requests_teach_nothing_about_many(server: Server) -> None:
    for number in range(100):
        server.ask(str(number))
        await server.turn()
        await server.answer_all(0.001)

    assert server.pace.limit == FIRST


async def test_ownership_leaves_before_what_waits_longer(server: Server) -> None:
    for number in range(FIRST):
        server.ask(f"first-{number}")
    await server.turn()
    for rank, name in ((2, "pod"), (1, "status"), (0, "row"), (0, "row too")):
        server.ask(name, rank)
    await server.turn()
    _, event = server.under_way.pop(0)
    event.set()
    await server.turn()
    assert server.names()[-1] == "row"

    await server.answer_all(SLOW_S)  # neither fast nor slow

    assert server.names() == ["row too", "status", "pod"]


async def test_while_the_lease_is_late_nothing_leaves_then_it_goes_on_gently(
    server: Server,
) -> None:
    await server.grow(16)
    server.is_lease_late = True
    for number in range(10):
        server.ask(str(number))
    await server.turn()
    assert server.under_way == []

    server.is_lease_late = False
    await until(lambda: server.under_way != [], "one leaves")

    assert len(server.under_way) == 1


async def test_who_gives_up_waiting_takes_no_place(server: Server) -> None:
    for number in range(FIRST):
        server.ask(str(number))
    await server.turn()
    given_up = server.ask("given up")
    just_let_go = server.ask("let go")
    await server.turn()
    given_up.cancel()
    await server.turn()
    server.under_way.pop(0)[1].set()
    await asyncio.sleep(0)  # its place is given on
    just_let_go.cancel()
    await server.turn()
    await server.answer_all(0.1)

    for number in range(2 * FIRST):
        server.ask(str(number))
    await server.turn()

    assert len(server.under_way) == server.pace.limit
