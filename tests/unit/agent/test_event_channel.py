"""What subscribers get, in both protocols, and what they may ask meanwhile."""

from typing import Any

import hiredis
import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import ToldEvent, ZoneState
from quorate_agent.notices.event_channel import zone_state
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import endpoint_of, replicas_in_memory

ZONE = ZoneRecord("uid-1", "books", 4, 2)
EVENTS = b"__quorate__:events"
SWITCHED = ToldEvent(7, "T", "Normal", "MigrationSwitched", "MOVE a > b", "books", 3)


def _row(partition: int, *replicas: str | None, voters: str = "ab") -> PartitionRow:
    holder = Holder("a", "s-a", 1)
    return PartitionRow(
        partition, 1, 1, holder, replicas, tuple(Voter(node, f"s-{node}") for node in voters)
    )


class Agent:
    """One agent's endpoint of one zone, and its clients."""

    def __init__(self) -> None:
        self.replicas = replicas_in_memory(ZONE, Holder("c", "s-c", 1), Now(0, 0))
        for partition in range(4):
            self.replicas.table[partition] = _row(partition, "a", "b")
        self.endpoint = endpoint_of(self.replicas, {}, lambda message: None)

    def client(self, resp3: bool = False) -> KeptClient:
        client = KeptClient(self.endpoint)
        if resp3:
            client.ask(b"HELLO", b"3")
        return client


@pytest.fixture
def agent() -> Agent:
    return Agent()


def _json(frame: list[Any]) -> ToldEvent:
    return msgspec.json.decode(frame[-1], type=ToldEvent)


@pytest.mark.parametrize("resp3", [False, True])
def test_who_subscribes_is_confirmed_then_told_the_state_then_each_event(
    agent: Agent, resp3: bool
) -> None:
    client = agent.client(resp3)
    confirmed, state = client.ask(b"SUBSCRIBE", EVENTS)
    assert confirmed == [b"subscribe", EVENTS, 1]
    assert state[:2] == [b"message", EVENTS]
    assert _json(state).state == ZoneState("Available", 4, 4, 0, 0, 0, 0)
    assert isinstance(state, hiredis.PushNotification) is resp3
    agent.endpoint.overview.events.tell([SWITCHED, msgspec.structs.replace(SWITCHED, sequence=8)])
    told = client.told()
    assert [_json(frame).sequence for frame in told] == [7, 8]
    assert _json(told[0]) == SWITCHED
    assert isinstance(told[0], hiredis.PushNotification) is resp3


def test_a_pattern_is_told_by_its_name_and_both_subscriptions_count(agent: Agent) -> None:
    client = agent.client()
    confirmed, state = client.ask(b"PSUBSCRIBE", b"__quorate__:*")
    assert confirmed == [b"psubscribe", b"__quorate__:*", 1]
    assert state[:3] == [b"pmessage", b"__quorate__:*", EVENTS]
    assert client.ask(b"subscribe", EVENTS)[0] == [b"subscribe", EVENTS, 2]
    agent.endpoint.overview.events.tell([SWITCHED])
    assert [frame[0] for frame in client.told()] == [b"pmessage", b"message"]
    assert client.ask(b"UNSUBSCRIBE") == [[b"unsubscribe", EVENTS, 1]]
    assert client.ask(b"PUNSUBSCRIBE", b"__quorate__:*") == [[b"punsubscribe", b"__quorate__:*", 0]]
    assert client.ask(b"UNSUBSCRIBE") == [[b"unsubscribe", None, 0]]
    agent.endpoint.overview.events.tell([SWITCHED])
    assert client.told() == []


@pytest.mark.parametrize("words", [(b"SUBSCRIBE", EVENTS, b"news"), (b"PSUBSCRIBE", b"news.*")])
def test_a_channel_that_nobody_publishes_to_is_refused_and_nothing_is_subscribed(
    agent: Agent, words: tuple[bytes, ...]
) -> None:
    client = agent.client()
    [refused] = client.ask(*words)
    assert isinstance(refused, hiredis.ReplyError)
    assert "'news" in str(refused)
    assert "there is: __quorate__:events" in str(refused)
    agent.endpoint.overview.events.tell([SWITCHED])
    assert client.told() == []


def test_in_resp2_a_subscriber_may_call_little_until_it_has_unsubscribed(agent: Agent) -> None:
    client = agent.client()
    client.ask(b"SUBSCRIBE", EVENTS)
    for words in ((b"GET", b"k"), (b"CLIENT", b"ID"), (b"MULTI",)):
        [refused] = client.ask(*words)
        assert f"Can't execute '{words[0].decode().lower()}" in str(refused)
    assert client.ask(b"PING") == [[b"pong", b""]]
    assert client.ask(b"PING", b"x") == [[b"pong", b"x"]]
    assert "unknown command" in str(client.ask(b"NOSUCH")[0])
    client.ask(b"UNSUBSCRIBE")
    assert client.ask(b"PING") == [b"PONG"]
    client.ask(b"SUBSCRIBE", EVENTS)
    assert client.ask(b"RESET") == [b"RESET"]
    assert client.ask(b"PING") == [b"PONG"]


def test_in_resp3_a_subscriber_goes_on_as_before(agent: Agent) -> None:
    client = agent.client(resp3=True)
    client.ask(b"SUBSCRIBE", EVENTS)
    assert client.ask(b"PING") == [b"PONG"]
    assert client.ask(b"ECHO", b"x") == [b"x"]


def test_a_pipeline_that_subscribes_is_judged_command_by_command(agent: Agent) -> None:
    client = agent.client()
    client.connection.data_received(
        b"*1\r\n$4\r\nPING\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$18\r\n__quorate__:events\r\n"
        b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n"
    )
    pong, confirmed, state, refused = client.told()
    assert (pong, confirmed[0], state[0]) == (b"PONG", b"subscribe", b"message")
    assert "Can't execute 'echo'" in str(refused)


def test_a_transaction_does_not_subscribe(agent: Agent) -> None:
    client = agent.client()
    client.ask(b"MULTI")
    assert "not allowed inside a transaction" in str(client.ask(b"SUBSCRIBE", EVENTS)[0])
    assert "EXECABORT" in str(client.ask(b"EXEC")[0])


def test_events_of_other_zones_are_not_told_and_those_of_agents_are(agent: Agent) -> None:
    client = agent.client()
    client.ask(b"SUBSCRIBE", EVENTS)
    other = msgspec.structs.replace(SWITCHED, zone="carts")
    left = ToldEvent(9, "T", "Warning", "NodeLeft", "a left")
    agent.endpoint.overview.events.tell([other, left])
    assert [_json(frame).reason for frame in client.told()] == ["NodeLeft"]


def test_the_loss_of_the_master_is_told_and_the_state_when_one_is_back(agent: Agent) -> None:
    client = agent.client()
    client.ask(b"SUBSCRIBE", EVENTS)
    agent.endpoint.overview.events.master_lost()
    agent.endpoint.overview.events.master_lost()
    [lost] = client.told()
    assert _json(lost).reason == "MasterLost"
    late = agent.client().ask(b"SUBSCRIBE", EVENTS)[1]
    assert "no master reaches" in _json(late).message
    agent.replicas.table[0] = _row(0, None, "b")
    agent.endpoint.overview.events.master_found()
    [found] = client.told()
    assert _json(found).reason == "State"
    assert "no master" not in _json(found).message
    assert _json(found).state == ZoneState("Unavailable", 4, 3, 0, 1, 0, 0)


def test_a_state_is_never_older_than_what_was_told_before_it(agent: Agent) -> None:
    agent.client().ask(b"SUBSCRIBE", EVENTS)
    agent.replicas.table[1] = _row(1, None, "b")
    agent.endpoint.overview.events.tell([SWITCHED])
    told = _json(agent.client().ask(b"SUBSCRIBE", EVENTS)[1])
    assert told.state is not None
    assert told.state.unavailable == 1
    assert told.sequence == SWITCHED.sequence


def test_a_zones_state_counts_rows_by_what_they_lack(agent: Agent) -> None:
    replicas = agent.replicas
    replicas.table[:] = [_row(0, "a", "b"), _row(1, "a"), _row(2, None, "b"), None]
    replicas.set_members(
        [NodeRecord(node, f"t-{node}", 0, "h", 1, "h") for node in "ab"]  # neither is what voted
    )
    replicas.stores["b"] = "s-b"
    assert zone_state(replicas) == ZoneState("Unavailable", 4, 1, 1, 2, 0, 0)
    replicas.stores["b"] = "another"
    found = zone_state(replicas)
    assert (found.lost, found.lost_partitions) == (3, (0, 1, 2))


def test_clients_that_subscribed_are_listed_as_such(agent: Agent) -> None:
    client = agent.client(resp3=True)
    client.ask(b"SUBSCRIBE", EVENTS)
    client.ask(b"PSUBSCRIBE", b"*")
    other = agent.client()
    [listed] = other.ask(b"CLIENT", b"LIST", b"TYPE", b"pubsub")
    assert listed.count(b"flags=P db=0 sub=1 psub=1") == 1
    assert listed.count(b"\n") == 1
