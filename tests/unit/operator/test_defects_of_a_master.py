"""An exception that nobody foresaw, wherever a master acts, ends its mastership and its process."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from quorate.protocol.master.master import Master
from quorate.protocol.metastore import ShardKey
from quorate_loopback.runner_world import ZONE, World, is_available
from quorate_loopback.waiting import until
from quorate_operator.mastership.dialing import Dialing
from quorate_operator.mastership.event_log import EventLog
from quorate_operator.mastership.runner import Runner

Act = Callable[[World, Runner], Coroutine[Any, Any, object]]


async def nothing(world: World, runner: Runner) -> None:
    """A timer, or an agent's next report, is what comes."""


async def an_agent_comes(world: World, runner: Runner) -> None:
    agent = await world.add_agent("agent-4")
    runner.set_addresses([*(each.address for each in world.agents.values()), agent.address])


async def an_agent_dies(world: World, runner: Runner) -> None:
    await world.agents["agent-3"].die()


async def a_user_changes_the_zone(world: World, runner: Runner) -> None:
    runner.set_zone(msgspec.structs.replace(ZONE, replicas=2))


async def a_user_drains(world: World, runner: Runner) -> None:
    assert "stopped by a defect" in await runner.drain("agent-1", True)


async def a_user_forgets(world: World, runner: Runner) -> None:
    assert "stopped by a defect" in await runner.forget_node("agent-1")


async def it_looks_again(world: World, runner: Runner) -> None:
    shards = [each for each in world.metastore.stored.items() if isinstance(each[0], ShardKey)]
    key, stored = shards[0]
    await world.metastore.write(key, stored.value, stored.revision)
    await runner.look_again()


PLACES: list[tuple[object, str, Act]] = [
    (Master, "tick", nothing),
    (Master, "receive", nothing),
    (Master, "take_outputs", nothing),
    (Master, "refusal", an_agent_comes),
    (Master, "agent_connected", an_agent_comes),
    (Master, "agent_disconnected", an_agent_dies),
    (Master, "set_zone", a_user_changes_the_zone),
    (Master, "written", a_user_changes_the_zone),
    (Master, "drain", a_user_drains),
    (Master, "forget", a_user_forgets),
    (Master, "reloaded", it_looks_again),
    (Dialing, "look", nothing),
    (Dialing, "reached", an_agent_comes),
    (EventLog, "add", an_agent_dies),
]


@pytest.mark.parametrize(
    ("owner", "name", "act"), PLACES, ids=[f"{name} {act.__name__}" for _, name, act in PLACES]
)
async def test_a_defect_anywhere_ends_leading_and_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, act: Act
) -> None:
    failures: list[str] = []
    runner = await world.lead(on_failed=failures.append)
    await until(lambda: is_available(runner), "available")

    def fails(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(owner, name, fails)
    await act(world, runner)

    await until(lambda: not runner.is_leading, "it leads no more")
    assert runner.problem == "stopped by a defect: KeyError: 'planted'"
    await runner.stop()
    assert failures == ["cluster main: stopped by a defect: KeyError: 'planted'"]
