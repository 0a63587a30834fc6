"""Which partitions a SCAN of an agent goes through: its own, those it lost lately, and all of them
when an earlier process began it."""

from typing import Any

import pytest

from quorate.protocol.messages.clients import Forward
from quorate_agent.resp.scan import ORIGINS, OVERLAP_S, STAMP_S, place_of
from quorate_lone_agent.agent import OTHER, Agent, key_in

LOST = 2


@pytest.fixture
def agent() -> Agent:
    """An agent with a key in each partition that has lost one of them."""
    agent = Agent()
    for partition in range(4):
        agent.write(b"SET", key_in(partition), b"v")
    agent.give(OTHER, [LOST])
    return agent


def _scan(agent: Agent, cursor: int = 0) -> tuple[set[bytes], list[bytes]]:
    """The keys of a whole scan that are found here, and the pages that another agent is asked for;
    it answers that the scan is over behind each."""
    client, found, asked = agent.writer(), set[bytes](), list[bytes]()
    while True:
        said: list[Any] = client.ask(b"SCAN", b"%d" % cursor, b"COUNT", b"100")
        if not said:
            (forward,) = [each for each in agent.sent if isinstance(each, Forward)]
            agent.sent.clear()
            asked.append(forward.commands[0][1])
            behind = place_of(int(asked[-1]), agent.endpoint.overview.scan_origin, 0)
            after = b"%d" % behind.start_of(behind.partition + 1).cursor
            agent.forwarded(client, b"*2\r\n$%d\r\n%b\r\n*0\r\n" % (len(after), after))
            said = client.told()
        ((next_cursor, keys),) = said
        found.update(keys)
        cursor = int(next_cursor)
        if not cursor:
            return found, asked


def _partitions(asked: list[bytes]) -> list[int]:
    return [place_of(int(cursor), 0, 0).partition for cursor in asked]


HERE = {key_in(partition) for partition in range(4) if partition != LOST}


@pytest.mark.parametrize("ago_s", [0, OVERLAP_S - STAMP_S])
def test_what_was_lost_lately_is_asked_of_who_has_it(agent: Agent, ago_s: int) -> None:
    agent.clock.ahead_ms = 1000 * ago_s
    found, asked = _scan(agent)
    assert found == HERE
    assert _partitions(asked) == [LOST]


def test_what_was_lost_long_ago_is_not(agent: Agent) -> None:
    agent.clock.ahead_ms = 1000 * (OVERLAP_S + 2 * STAMP_S)
    assert _scan(agent) == (HERE, [])


def test_what_is_lost_while_the_scan_goes_on_is_asked_of_who_has_it(agent: Agent) -> None:
    agent.replicas.lost_primary.clear()
    client = agent.writer()
    ((cursor, first),) = client.ask(b"SCAN", b"0", b"COUNT", b"1")
    agent.give(OTHER, [3])
    agent.clock.ahead_ms = 1000 * OVERLAP_S
    found, asked = _scan(agent, int(cursor))
    assert found | {*first} == HERE - {key_in(3)}
    assert _partitions(asked) == [3]


def test_a_scan_that_another_process_began_goes_through_all_partitions(agent: Agent) -> None:
    """Nobody knows which were that one's."""
    agent.replicas.lost_primary.clear()
    assert _scan(agent) == (HERE, [])
    own = agent.endpoint.overview.scan_origin
    now_s = agent.endpoint.overview.uptime_s()
    began = place_of(0, (own + 1) % ORIGINS, now_s)
    found, asked = _scan(agent, began.cursor)
    assert found == HERE
    assert _partitions(asked) == [LOST]
