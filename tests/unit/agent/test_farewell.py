"""An agent that is told to end hands its primaries over, for so long and no longer."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from quorate_agent.process import farewell

BOUND_S = 1.0
TURN_S = 0.1


def test_a_hand_over_is_bounded_also_while_turns_are_long() -> None:
    role = SimpleNamespace(row=SimpleNamespace(owners=("a", "b")))
    zones = cast(Any, {"uid": SimpleNamespace(roles={0: role})})

    async def leave() -> int:
        """How many turns it took."""
        turns = 0

        async def busy() -> None:
            nonlocal turns
            while True:
                until = time.monotonic() + TURN_S  # of an agent that has much to do
                while time.monotonic() < until:
                    pass
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(busy())
        await farewell.hand_over(zones, BOUND_S, lambda: True)
        task.cancel()
        return turns

    # Each of its own pauses lasts for a turn: fifty, were they counted instead of the time.
    assert asyncio.run(leave()) <= BOUND_S / TURN_S + 2


def test_an_agent_has_ended_within_its_grace_also_where_nobody_takes_over(monkeypatch: Any) -> None:
    role = SimpleNamespace(row=SimpleNamespace(owners=("a", "b")))
    transactions = SimpleNamespace(coordinates=True)
    zone = SimpleNamespace(roles={0: role}, transactions=transactions)
    zones, runtimes = cast(Any, {"uid": zone}), cast(Any, {})
    monkeypatch.setattr(farewell, "CLOSING_S", 0.1)

    for grace_s in (0.0, 0.5, 1.0):
        began = time.monotonic()
        asyncio.run(farewell.leave_in_time(zones, runtimes, grace_s, lambda: True))
        took_s = time.monotonic() - began

        assert max(grace_s - 0.1, 0.0) <= took_s < grace_s + 0.3


def test_an_agent_lingers_for_clients_but_not_beyond_its_grace(monkeypatch: Any) -> None:
    monkeypatch.setattr(farewell, "CLOSING_S", 0.1)

    for linger_s, grace_s, expected_s in ((0.0, 1.0, 0.0), (0.4, 1.0, 0.4), (5.0, 0.6, 0.5)):
        began = time.monotonic()
        asyncio.run(farewell.leave_in_time({}, {}, grace_s, lambda: True, linger_s))
        took_s = time.monotonic() - began

        assert expected_s <= took_s < 4.0, "not as long as it would linger"


def test_an_agent_sees_the_answers_of_others_come_but_not_beyond_its_grace(
    monkeypatch: Any,
) -> None:
    """A command was sent on to the next primary, which answers after 0.4 s."""
    monkeypatch.setattr(farewell, "CLOSING_S", 0.1)

    for answers_s, has_master, expected_s in ((0.4, True, 0.4), (9.0, True, 0.7), (9.0, False, 0)):
        assert expected_s <= _left_in_s(answers_s, has_master) < (4.0 if has_master else 0.4)


def _left_in_s(answers_s: float, has_master: bool) -> float:
    """The seconds in which an agent has left whose last answer comes after `answers_s`."""
    began = time.monotonic()

    class Endpoint:
        overview = SimpleNamespace(clients={})

        @property
        def waits_for_others(self) -> bool:
            return time.monotonic() - began < answers_s

    runtimes = cast(Any, {"uid": SimpleNamespace(endpoint=Endpoint())})
    asyncio.run(farewell.leave_in_time({}, runtimes, 0.8, lambda: has_master))
    return time.monotonic() - began
