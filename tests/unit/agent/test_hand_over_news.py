"""What connections that asked for it are told of hand-overs, and when."""

from typing import Any

import hiredis

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate_agent.notices.hand_overs import GATHER_MS
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent

WIDTH = 16384 // 4


def _row(agent: Agent, partition: int, begins: bool) -> PartitionRow:
    """A row in which the primary is about to go to the other agent, or is there."""
    kind = MigrationKind.SWAP
    active = Migration("m", kind, "a", OTHER, ("b", "a"), ()) if begins else None
    primary = agent.me if begins else OTHER
    return PartitionRow(partition, 9, 9, primary, (primary.node,), (), active)


def _listener(agent: Agent) -> KeptClient:
    client = agent.writer()
    client.ask(b"HELLO", b"3")
    assert client.ask(b"CLIENT", b"MAINT_NOTIFICATIONS", b"ON") == [b"OK"]
    return client


def _told(client: KeptClient) -> list[Any]:
    frames = client.told()
    assert all(isinstance(frame, hiredis.PushNotification) for frame in frames)
    return frames


def test_news_of_ended_hand_overs_are_gathered_and_name_who_has_what(agent: Agent) -> None:
    news, client, silent = agent.endpoint.hand_overs, _listener(agent), agent.writer()
    now = agent.clock.boot_ms()
    news.rows_came([_row(agent, each, begins=True) for each in (1, 2)], now)
    news.tell(now)
    ((name, _, slots),) = _told(client)
    assert (name, slots) == (b"SMIGRATING", b"%d-%d" % (WIDTH, 3 * WIDTH - 1))

    for partition, later in ((1, 0), (2, GATHER_MS - 1)):
        news.rows_came([_row(agent, partition, begins=False)], now + later)
        news.tell(now + later)
        assert _told(client) == []
    news.tell(now + GATHER_MS)
    ((name, _, told),) = _told(client)
    assert name == b"SMIGRATED"
    assert told == [[b"a:1", b"b:2", b"%d-%d" % (WIDTH, 3 * WIDTH - 1)]]
    assert not news.has_news
    assert silent.told() == []


def test_a_hand_over_that_was_given_up_went_from_here_to_here(agent: Agent) -> None:
    news, client, now = agent.endpoint.hand_overs, _listener(agent), agent.clock.boot_ms()
    news.rows_came([_row(agent, 1, begins=True)], now)
    news.tell(now)
    stays = PartitionRow(1, 11, 11, agent.me, ("a",), ())
    news.rows_came([stays], now)
    news.tell(now + GATHER_MS)
    (_, (_, _, told)) = _told(client)
    assert told == [[b"a:1", b"a:1", b"%d-%d" % (WIDTH, 2 * WIDTH - 1)]]


def test_a_sequence_number_is_never_used_twice(agent: Agent) -> None:
    news, client, now = agent.endpoint.hand_overs, _listener(agent), agent.clock.boot_ms()
    for each in range(20):
        for begins in (True, False):
            news.rows_came([_row(agent, each % 4, begins)], now)
            news.tell(now + GATHER_MS)
    sequences = [sequence for _, sequence, _ in _told(client)]
    assert len(sequences) == 40
    assert sequences == sorted({*sequences})
