"""Scenarios of links run on asyncio and on uvloop."""

import asyncio

import pytest
import uvloop

from quorate_loopback.sides import RunScenario, Scenario, close_opened

DEADLINE_SECONDS = 20


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> RunScenario:
    """Runs a scenario in a loop of its own; what a loop would only log fails the test."""

    def run(scenario: Scenario) -> None:
        new_loop = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        problems: list[dict[str, object]] = []
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.get_loop().set_exception_handler(lambda _, problem: problems.append(problem))

            async def bounded() -> None:
                try:
                    async with asyncio.timeout(DEADLINE_SECONDS):
                        await scenario()
                finally:
                    await close_opened()

            runner.run(bounded())
        assert problems == []

    return run
