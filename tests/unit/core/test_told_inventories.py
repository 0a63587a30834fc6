"""An agent's report of its copies: it ends once all that the present master asked for is told."""

import pytest

from quorate.protocol.agent.turn import Turn
from quorate.protocol.messages.master import AskInventory, Inventory
from quorate_lone_agent.core import LoneAgent
from quorate_sim.disk import SimStorage

BEFORE, NOW = AskInventory(1), AskInventory(2, rows=True)
"""The questions of a master, and of its successor that has lost the metastore."""


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> LoneAgent:
    return LoneAgent(1, monkeypatch)


def _ask(agent: LoneAgent, ask: AskInventory) -> list[tuple[str, Turn]]:
    """Ask, and end the turn; return what is not durable yet."""
    assert agent.core.receive_from_master(ask, agent.now)
    return agent.core.flush(agent.now).turns


def _durable(agent: LoneAgent, turns: list[tuple[str, Turn]]) -> list[Inventory]:
    """Return the reports that leave when these turns are durable."""
    sent = [each for uid, turn in turns for each in agent.core.synced(uid, turn, agent.now)]
    return [message for _, message in sent if isinstance(message, Inventory)]


@pytest.mark.parametrize("rows", [False, True])
def test_an_answer_to_the_master_before_does_not_end_the_report_to_the_present_one(
    agent: LoneAgent, rows: bool
) -> None:
    before = _ask(agent, BEFORE)
    now = _ask(agent, AskInventory(2, rows=rows))

    told = _durable(agent, before)
    assert [(each.rows, each.last) for each in told] == [(False, False)]

    told = _durable(agent, now)
    assert [(each.rows, each.last) for each in told] == [(rows, False), (False, True)]


@pytest.mark.parametrize("rows", [False, True])
def test_rows_told_of_one_zone_do_not_end_a_report_of_all_copies(
    agent: LoneAgent, rows: bool
) -> None:
    one = _ask(agent, AskInventory(1, True, "zone-0"))
    every = _ask(agent, AskInventory(2, rows=rows))

    assert not any(each.last for each in _durable(agent, one))
    assert [each.last for each in _durable(agent, every)] == [False, True]


def test_a_turn_without_room_tells_what_it_was_asked_for_all_the_same(agent: LoneAgent) -> None:
    zone, role = agent.core.zones["zone-0"], agent.role()
    role.write(((b"key", b"value", 0),))
    zone.commands_wrote(role)
    assert isinstance(zone.storage, SimStorage)
    zone.storage.refuse = True

    told = _durable(agent, _ask(agent, NOW))

    assert not zone.storage.refuse, "the turn was undone"
    assert [(each.rows, each.last) for each in told] == [(True, False), (False, True)]
    assert told[0].record is not None
    assert all(copy.row is not None for copy in told[0].copies)
