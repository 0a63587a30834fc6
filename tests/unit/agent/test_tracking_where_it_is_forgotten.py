"""What those who cache hear where it is easily forgotten: of expiry, in transactions, by others."""

from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.transactions import PartPrepared, PreparePart
from quorate_agent.notices import pushes, tracking
from quorate_agent.notices.tracking import NOTES_BYTES_MAX
from quorate_agent.resp.commands.session.tracking import PREFIXES_BYTES_MAX
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in

INVALIDATIONS = b"__redis__:invalidate"


def _pushes(frames: list[Any]) -> list[Any]:
    return [frame[1] for frame in frames if isinstance(frame, hiredis.PushNotification)]


def test_expiry_is_told_before_anybody_is_answered_that_the_key_is_gone(
    agent: Agent, pass_a_minute: Callable[[], None]
) -> None:
    agent.write(b"SET", b"k", b"1", b"EX", b"60")
    client, reader = agent.client(), agent.writer()
    assert client.ask(b"GET", b"k") == [b"1"]
    pass_a_minute()
    shown = reader.ask(b"GET", b"k")
    told = _pushes(client.told())
    assert (shown, told) == ([], [[b"k"]])  # to show it waits for the acknowledgement
    agent.turn()
    assert reader.told() == [None]


@pytest.mark.parametrize("reads", [1, 2], ids=["one", "joined"])
def test_expiry_is_told_before_it_is_shown_while_a_new_primary_searches_its_rows(
    agent: Agent, pass_a_minute: Callable[[], None], reads: int
) -> None:
    agent.write(b"SET", b"k", b"1", b"EX", b"60")
    agent.give(agent.me, range(4))
    assert key_partition(b"k", ZONE.partitions) in agent.replicas.surveys
    client, reader = agent.client(), agent.writer()
    assert client.ask(b"GET", b"k") == [b"1"]
    pass_a_minute()

    shown = reader.send(*[(b"GET", b"k")] * reads)
    told = _pushes(client.told())
    assert (shown, told) == ([], [[b"k"]])
    agent.turn()
    assert reader.told() == [None] * reads


def test_who_reads_that_a_key_has_expired_is_told_when_it_is_written_again(
    agent: Agent, pass_a_minute: Callable[[], None]
) -> None:
    agent.write(b"SET", b"k", b"1", b"EX", b"60")
    client = agent.client()
    client.ask(b"GET", b"k")
    pass_a_minute()
    client.ask(b"GET", b"k")
    agent.turn()
    assert client.told()[-1] is None
    agent.write(b"SET", b"k", b"new")
    assert _pushes(client.told()) == [[b"k"]]


def test_expiry_that_a_transaction_over_partitions_shows_is_told(
    agent: Agent, pass_a_minute: Callable[[], None]
) -> None:
    low, high = key_in(0), key_in(3)
    agent.write(b"SET", low, b"1", b"EX", b"60")
    client = agent.client()
    client.ask(b"GET", low)
    pass_a_minute()
    assert agent.execute(agent.writer(), (b"GET", low), (b"GET", high)) == [None, None]
    assert _pushes(client.told()) == [[low]]


def test_what_a_transaction_reads_that_another_agent_executes_is_not_to_be_kept(
    agent: Agent,
) -> None:
    key = key_in(1)
    client = agent.client()
    agent.give(OTHER, [1])
    client.send((b"MULTI",), (b"GET", key), (b"EXEC",))
    agent.forwarded(client, b"*1\r\n$3\r\nold\r\n")
    told = client.told()

    assert told[0] == [b"old"]
    assert _pushes(told) == [[key]]


def test_what_a_parked_transaction_reads_is_not_to_be_kept(agent: Agent) -> None:
    key = key_in(1)
    agent.write(b"SET", key, b"old")
    client = agent.client()
    agent.lose_primary(1)
    client.send((b"MULTI",), (b"GET", key), (b"EXEC",))
    agent.give(agent.me, [1])
    agent.turn()
    told = client.told()

    assert len(told[0]) == 1
    assert _pushes(told) == [[key]]


def test_what_a_transaction_reads_at_two_agents_is_not_to_be_kept(agent: Agent) -> None:
    here, elsewhere = key_in(0), key_in(1)
    client = agent.client()
    agent.give(OTHER, [1])
    client.send((b"MULTI",), (b"GET", here), (b"GET", elsewhere), (b"EXEC",))
    agent.turn()
    asked = [message for _, message in agent.said if isinstance(message, PreparePart)][-1]
    answered = PartPrepared(ZONE.uid, asked.transaction, 1, 0, 5, 5, (b"$3\r\nold\r\n",), b"")
    agent.receive("b", answered)
    told = client.told()

    assert told[0] == [None, b"old"]
    assert elsewhere in _pushes(told)[0]


def test_what_a_transaction_read_that_begins_to_track_is_kept_while_something_expires(
    agent: Agent, pass_a_minute: Callable[[], None]
) -> None:
    expired, key = key_in(0), key_in(0, b"other")
    agent.write(b"SET", expired, b"1", b"EX", b"60")
    agent.write(b"SET", key, b"old")
    pass_a_minute()
    agent.endpoint.overview.tracking._look_ms = 0
    client = KeptClient(agent.endpoint)
    client.ask(b"HELLO", b"3")
    track = (b"CLIENT", b"TRACKING", b"ON")
    said = agent.execute(client, track, (b"GET", expired), (b"GET", key))
    assert said == [b"OK", None, b"old"]
    agent.write(b"SET", key, b"new")
    assert [key] in _pushes(client.told())


def test_a_flush_is_told_to_who_has_read_nothing(agent: Agent) -> None:
    client = agent.client(b"OPTIN")
    agent.write(b"FLUSHALL")
    assert _pushes(client.told()) == [None]


def test_two_invalidations_behind_the_same_last_reply_both_come_behind_it(agent: Agent) -> None:
    listener = agent.writer()
    listener.ask(b"HELLO", b"3")
    for key in (b"a", b"b"):
        agent.write(b"SET", key, b"old")
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number, resp3=False)
    client.ask(b"GET", b"a")
    client.ask(b"GET", b"b")
    client.send((b"SET", b"x", b"1"), (b"GET", b"a"), (b"GET", b"b"))  # behind a write that waits
    for key in (b"a", b"b"):
        agent.writer().ask(b"SET", key, b"new")
        agent.written()
        listener.told()
    agent.turn()
    assert client.told() == [b"OK", b"old", b"old"]
    assert {key for keys in _pushes(listener.told()) for key in keys} == {b"a", b"b"}


def test_what_has_left_long_ago_does_not_count_for_what_gathers(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes, "OUTPUT_BYTES_MAX", 1000)
    client = agent.client()
    for n in range(100):
        key = b"k%d" % n
        client.ask(b"GET", key)
        client.ask(b"SET", b"own", b"1")  # waits to be durable
        agent.write(b"SET", key, b"x")
        client.told()
        assert not client.connection.queue
    assert not client.socket.closed


def test_many_that_expire_at_once_are_told_before_they_are_shown(
    agent: Agent, pass_a_minute: Callable[[], None]
) -> None:
    keys = [b"{a}%d" % n for n in range(1000)]
    for key in keys:
        agent.writer().ask(b"SET", key, b"1", b"EX", b"60")
    agent.turn()
    client, reader = agent.client(), agent.writer()
    client.ask(b"MGET", *keys)
    pass_a_minute()
    for _ in range(3):
        agent.replicas.tick(agent.clock.now())
        agent.turn()
    told: set[bytes] = set()
    for key in keys:
        shown = reader.ask(b"GET", key)
        told |= {key for push in _pushes(client.told()) for key in push}
        assert shown != [None] or key in told


def test_a_listener_of_resp2_gets_the_reply_it_waits_for_first(agent: Agent) -> None:
    listener = agent.writer()
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number, resp3=False)
    client.ask(b"GET", b"k")
    # One read of the socket: SET waits for its acknowledgement.
    assert listener.send((b"SET", b"x", b"1"), (b"SUBSCRIBE", INVALIDATIONS)) == []
    agent.writer().ask(b"SET", b"k", b"1")
    agent.turn()
    assert listener.told() == [
        b"OK",
        [b"subscribe", INVALIDATIONS, 1],
        [b"message", INVALIDATIONS, [b"k"]],
    ]


@pytest.mark.parametrize("others", [False, True])
def test_tracking_that_begins_inside_a_transaction_of_several_partitions(
    agent: Agent, others: bool
) -> None:
    """Two local partitions."""
    if others:
        agent.client()
    assert key_partition(b"k0", 4) != key_partition(b"k1", 4)
    client = KeptClient(agent.endpoint)
    client.ask(b"HELLO", b"3")
    client.send(
        (b"MULTI",), (b"CLIENT", b"TRACKING", b"ON"), (b"GET", b"k0"), (b"GET", b"k1"), (b"EXEC",)
    )
    for _ in range(10):
        agent.turn()
    said = client.told()
    assert said[-1] == [b"OK", None, None] or said[0] == [b"OK", None, None], said
    agent.write(b"SET", b"k0", b"1")
    agent.write(b"SET", b"k1", b"1")
    told = {key for push in _pushes(said + client.told()) for key in push}
    assert told == {b"k0", b"k1"}


@pytest.mark.parametrize("others", [False, True])
def test_tracking_that_begins_inside_a_transaction_that_waited_for_a_primary(
    agent: Agent, others: bool
) -> None:
    if others:
        agent.client()
    client = KeptClient(agent.endpoint)
    client.ask(b"HELLO", b"3")
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, 0
    client.send((b"MULTI",), (b"CLIENT", b"TRACKING", b"ON"), (b"GET", b"k"), (b"EXEC",))
    role.serving_until = until
    agent.turn()
    said = client.told()
    assert [b"OK", None] in said
    agent.write(b"SET", b"k", b"1")
    told = {key for push in _pushes(said + client.told()) for key in push}
    assert told == {b"k"}


def test_the_tracking_table_is_bounded_in_bytes(agent: Agent) -> None:
    client = agent.client()
    size = 1 << 20
    for n in range(100):
        client.ask(b"GET", b"%d" % n * 1 + b"x" * size)
    agent.turn()
    client.told()
    watched = agent.endpoint.overview.tracking._watched
    held = sum(len(key) for each in watched.values() for key in each.keys)
    assert held <= NOTES_BYTES_MAX


def test_an_old_reply_of_a_redirecting_client_is_not_behind_its_last_invalidation(
    agent: Agent,
) -> None:
    """It sends on and on; each reply of the kind that is the same object every time."""
    listener = agent.writer()
    listener.ask(b"SUBSCRIBE", INVALIDATIONS)
    client = agent.client(b"REDIRECT", b"%d" % listener.connection.state.id, resp3=False)
    client.send((b"SET", b"x", b"1"), (b"GET", b"k"), (b"GET", b"y"))
    agent.writer().ask(b"SET", b"k", b"new")
    agent.written()
    assert len(listener.told()) == 1  # ahead of the reply
    said = []
    for _ in range(20):
        said += client.send((b"SET", b"x", b"1"), (b"GET", b"y"))
        agent.synced()
        said += client.send((b"SET", b"x", b"1"), (b"GET", b"y"))
        agent.written()
        said += client.told()
    assert said[:3] == [b"OK", None, None]  # None is what k no longer is
    assert len(said) > 60
    assert listener.told() != []


def test_little_gathers_behind_a_reply_that_does_not_come(agent: Agent) -> None:
    listener = agent.writer()
    listener.ask(b"SUBSCRIBE", INVALIDATIONS)
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number, b"BCAST", resp3=False)
    client.send((b"WAIT", b"1", b"0"), (b"GET", b"k"))
    for turn in range(50):
        agent.write(b"SET", b"k%d" % turn, b"1")
        assert len(listener.told()) == 1  # ahead of the reply
    behind = agent.endpoint.overview.tracking._behind
    assert sum(map(len, behind.values())) == 1
    client.leave()
    agent.turn()
    assert not behind


def test_each_key_is_told_behind_the_replies_that_were_asked_for_before_it(agent: Agent) -> None:
    listener = agent.writer()
    listener.ask(b"HELLO", b"3")
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number, b"BCAST", resp3=False)
    for turn in range(3):
        client.send((b"SET", b"x%d" % turn, b"1"), (b"GET", b"y%d" % turn))
        agent.writer().ask(b"SET", b"k%d" % turn, b"1")
        agent.written()

    [held] = agent.endpoint.overview.tracking._behind.values()

    assert len({id(each.place) for each in held}) == 3


@pytest.mark.parametrize("bound", [tracking.BEHIND_BYTES_MAX, 1000])
def test_beyond_a_number_of_keys_behind_a_reply_everything_is_told(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr(tracking, "BEHIND_BYTES_MAX", bound)
    listener = agent.writer()
    listener.ask(b"HELLO", b"3")
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number, b"BCAST", resp3=False)
    keys = [b"k%d" % each for each in range(50)]
    client.send((b"SET", b"x", b"1"), (b"GET", b"y"))  # waits to be durable
    for key in keys:
        agent.writer().ask(b"SET", key, b"1")
        agent.written()
    listener.told()
    agent.turn()
    assert client.told() == [b"OK", None]
    assert _pushes(listener.told()) == [None if bound == 1000 else [b"x", *keys]]


def test_the_prefixes_of_a_connection_are_bounded_in_all() -> None:
    agent = Agent()
    client = agent.client(b"BCAST", b"PREFIX", b"a" * (PREFIXES_BYTES_MAX - 10))
    words = (b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"PREFIX")

    (told,) = client.ask(*words, b"b" * 11)
    assert "prefixes of more than" in str(told)
    assert client.ask(*words, b"b" * 10) == [b"OK"]
