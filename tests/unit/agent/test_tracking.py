"""Clients that cache what they read are told of every change they could not otherwise hear of."""

from typing import Any

import hiredis
import pytest

from quorate.facts.keyspace import key_partition
from quorate.facts.time import Now
from quorate.protocol.copies.role_state import FrozenFor
from quorate_agent.notices import tracking
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent

INVALIDATIONS = b"__redis__:invalidate"


def _pushes(frames: list[Any]) -> list[Any]:
    """What was said to be stale, push by push."""
    told = []
    for frame in frames:
        if isinstance(frame, hiredis.PushNotification):
            assert frame[0] == b"invalidate"
            told.append(frame[1])
    return told


def test_a_key_that_was_read_is_told_once_when_another_writes_it(agent: Agent) -> None:
    client = agent.client()
    assert client.ask(b"GET", b"k") == [None]
    agent.write(b"SET", b"other", b"1")
    assert client.told() == []
    agent.write(b"SET", b"k", b"1")
    assert client.told() == [[b"invalidate", [b"k"]]]
    agent.write(b"SET", b"k", b"2")
    assert client.told() == []


@pytest.mark.parametrize(
    "words",
    [
        (b"DEL", b"k"),
        (b"EXPIRE", b"k", b"100"),
        (b"RENAME", b"k", b"{k}2"),
        (b"COPY", b"{k}3", b"k", b"REPLACE"),
        (b"GETDEL", b"k"),
        (b"GETEX", b"k", b"EX", b"5"),
        (b"APPEND", b"k", b"x"),
    ],
    ids=lambda words: words[0].decode(),
)
def test_every_kind_of_write_is_told(agent: Agent, words: tuple[bytes, ...]) -> None:
    agent.write(b"MSET", b"k", b"1", b"{k}3", b"3")
    client = agent.client()
    client.ask(b"GET", b"k")
    agent.write(*words)
    assert _pushes(client.told()) == [[b"k"]]


def test_all_keys_of_a_read_are_noted_and_told_in_one_push(agent: Agent) -> None:
    client = agent.client()
    client.ask(b"MGET", b"{k}1", b"{k}2", b"{k}3")
    agent.write(b"DEL", b"{k}1", b"{k}2")
    assert client.told() == []  # nothing was there: nothing is written
    agent.write(b"MSET", b"{k}1", b"a", b"{k}2", b"b")
    assert _pushes(client.told()) == [[b"{k}1", b"{k}2"]]


def test_a_write_is_told_before_anybody_is_answered_who_could_show_it(agent: Agent) -> None:
    client, writer, reader = agent.client(), agent.writer(), agent.writer()
    client.ask(b"GET", b"k")
    assert writer.ask(b"SET", b"k", b"1") == []
    assert reader.ask(b"GET", b"k") == []
    agent.written()
    assert _pushes(client.told()) == [[b"k"]]
    assert writer.told() == reader.told() == []
    agent.synced()
    assert (writer.told(), reader.told()) == ([b"OK"], [b"1"])


def test_what_is_read_while_a_write_is_not_acknowledged_is_noted_for_the_next(
    agent: Agent,
) -> None:
    client, writer = agent.client(), agent.writer()
    writer.ask(b"SET", b"k", b"1")
    agent.written()
    assert client.ask(b"GET", b"k") == []
    writer.ask(b"SET", b"k", b"2")
    agent.written()
    early = client.told()
    agent.synced()
    # Its reply shows the first value: it is told behind that too, not only ahead of it.
    assert _pushes(early) == [[b"k"]]
    assert client.told() == [b"1", [b"invalidate", [b"k"]]]


def test_an_old_value_in_a_reply_that_is_held_up_is_followed_by_its_invalidation(
    agent: Agent,
) -> None:
    client = agent.client()
    assert client.send((b"SET", b"mine", b"1"), (b"GET", b"k")) == []
    agent.writer().ask(b"SET", b"k", b"1")
    agent.written()
    assert _pushes(client.told()) == [[b"k"]]
    agent.synced()
    assert client.told() == [b"OK", None, [b"invalidate", [b"k"]]]


def test_a_transaction_that_reads_and_writes_a_key_is_followed_by_its_invalidation(
    agent: Agent,
) -> None:
    agent.write(b"SET", b"k", b"old")
    client = agent.client()
    client.send((b"MULTI",), (b"GET", b"k"), (b"SET", b"k", b"new"), (b"EXEC",))
    agent.turn()
    told = client.told()
    assert told[-2:] == [[b"old", b"OK"], [b"invalidate", [b"k"]]]


def test_what_a_transaction_reads_is_noted_and_what_it_writes_is_told(agent: Agent) -> None:
    client, other = agent.client(), agent.writer()
    client.send((b"MULTI",), (b"GET", b"{k}1"), (b"GET", b"{k}2"), (b"EXEC",))
    other.send((b"MULTI",), (b"SET", b"{k}1", b"x"), (b"SET", b"{k}2", b"y"), (b"EXEC",))
    agent.turn()
    assert _pushes(client.told()) == [[b"{k}1", b"{k}2"]]


def test_a_transaction_across_partitions_is_told_before_it_is_answered(agent: Agent) -> None:
    keys = [b"k%d" % number for number in range(4)]
    assert len({key_partition(key, 4) for key in keys}) > 1
    client, writer = agent.client(), agent.writer()
    client.send(*[(b"GET", key) for key in keys])
    writer.send((b"MULTI",), *[(b"SET", key, b"x") for key in keys], (b"EXEC",))
    told: list[bytes] = []
    for _ in range(100):
        agent.written()
        told += [key for push in _pushes(client.told()) for key in push]
        if writer.told():
            break
        agent.synced()
        told += [key for push in _pushes(client.told()) for key in push]
        if writer.told():
            break
    assert sorted(set(told)) == keys


def test_tracking_that_begins_inside_a_transaction_misses_none_of_its_reads(agent: Agent) -> None:
    client = KeptClient(agent.endpoint)
    client.ask(b"HELLO", b"3")
    client.send((b"MULTI",), (b"CLIENT", b"TRACKING", b"ON"), (b"GET", b"k"), (b"EXEC",))
    agent.write(b"SET", b"k", b"1")
    assert _pushes(client.told()) == [[b"k"]]


def test_tracking_that_begins_inside_a_transaction_misses_none_that_come_behind_it(
    agent: Agent,
) -> None:
    client = KeptClient(agent.endpoint)
    client.ask(b"HELLO", b"3")
    begin = ((b"MULTI",), (b"CLIENT", b"TRACKING", b"ON"), (b"GET", b"x"), (b"EXEC",))
    client.send(*begin, (b"GET", b"k"))
    client.ask(b"GET", b"l")
    agent.write(b"SET", b"k", b"1")
    agent.write(b"SET", b"l", b"1")
    assert _pushes(client.told()) == [[b"k"], [b"l"]]


def test_expiry_is_told(agent: Agent) -> None:
    agent.write(b"SET", b"k", b"1", b"PX", b"1000000")
    client = agent.client()
    client.ask(b"GET", b"k")
    agent.replicas.tick(Now(1 << 60, agent.clock.boot_ms()))
    agent.turn()
    assert _pushes(client.told()) == [[b"k"]]


def test_everything_is_stale_after_flushall(agent: Agent) -> None:
    client, idle = agent.client(), agent.client()
    client.send(*[(b"GET", b"k%d" % number) for number in range(20)])
    agent.write(b"FLUSHALL")
    assert _pushes(client.told()) == _pushes(idle.told()) == [None]
    agent.write(b"SET", b"k1", b"x")
    assert client.told() == []


def test_a_partition_that_goes_elsewhere_takes_its_keys_along(agent: Agent) -> None:
    client = agent.client()
    keys = [b"k%d" % number for number in range(40)]
    client.send(*[(b"GET", key) for key in keys])
    agent.give(OTHER, [2])
    [told] = _pushes(client.told())
    assert sorted(told) == sorted(key for key in keys if key_partition(key, 4) == 2)


def test_so_does_one_that_is_ours_again_in_a_new_term(agent: Agent) -> None:
    client = agent.client()
    client.ask(b"GET", b"k")
    agent.give(agent.me, range(4))
    assert _pushes(client.told()) == [[b"k"]]
    client.ask(b"GET", b"k")
    agent.write(b"SET", b"k", b"1")
    assert _pushes(client.told()) == [[b"k"]]


@pytest.mark.parametrize("how", ["frozen", "without lease"])
def test_a_primary_that_must_not_serve_tells_that_it_will_hear_of_nothing(
    agent: Agent, how: str
) -> None:
    client = agent.client()
    client.ask(b"GET", b"k")
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    if how == "frozen":
        role.frozen = FrozenFor("migration", 0)
    else:
        role.serving_until = agent.clock.boot_ms()
    agent.endpoint.settle()
    assert _pushes(client.told()) == [[b"k"]]


def test_a_primary_whose_lease_ends_soon_has_told_before_others_may_serve(agent: Agent) -> None:
    """It might not run at the very moment when it ends."""
    client = agent.client()
    client.ask(b"GET", b"k")
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, agent.clock.boot_ms() + tracking.SURE_MS
    agent.endpoint.settle()
    assert _pushes(client.told()) == [[b"k"]]

    assert client.ask(b"GET", b"k") == [None, [b"invalidate", [b"k"]]]

    role.serving_until = until  # it was renewed
    assert client.ask(b"GET", b"k") == [None]
    agent.write(b"SET", b"k", b"1")
    assert _pushes(client.told()) == [[b"k"]]


def test_a_read_that_another_agent_answers_is_not_to_be_kept(agent: Agent) -> None:
    client = agent.client()
    agent.give(OTHER, range(4))
    assert client.ask(b"GET", b"k") == []
    [forward] = agent.sent
    agent.forwarded(client, b"$3\r\nold\r\n")
    assert forward.commands == ((b"GET", b"k"),)
    assert client.told() == [b"old", [b"invalidate", [b"k"]]]


def test_a_read_from_a_copy_is_not_to_be_kept(agent: Agent) -> None:
    agent.write(b"SET", b"k", b"1")
    client = agent.client()
    client.ask(b"READONLY")
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    role.serving_until = 0
    assert client.ask(b"GET", b"k") == [b"1", [b"invalidate", [b"k"]]]


def test_a_parked_read_is_not_to_be_kept(agent: Agent) -> None:
    client = agent.client()
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, 0
    assert client.ask(b"GET", b"k") == []
    role.serving_until = until
    agent.endpoint.settle()
    assert client.told() == [None, [b"invalidate", [b"k"]]]


def test_a_redirection_is_followed_by_its_invalidation(agent: Agent) -> None:
    """redis-py notes the key before it asks; refused, it never asks again for what it has noted."""
    client = agent.client()
    agent.give(OTHER, range(4))
    agent.replicas.lost_primary.clear()
    moved, told = client.ask(b"GET", b"k")
    assert isinstance(moved, hiredis.ReplyError)
    assert told == [b"invalidate", [b"k"]]


def test_a_read_that_is_parked_for_a_lock_is_followed_by_its_invalidation(agent: Agent) -> None:
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    role.locks[b"k"] = b"transaction"
    client = agent.client()
    assert client.ask(b"GET", b"k") == []
    agent.clock.ahead_ms = 5_001
    agent.endpoint.settle()
    nobody, told = client.told()
    assert isinstance(nobody, hiredis.ReplyError)
    assert told == [b"invalidate", [b"k"]]


def test_own_writes_are_told_unless_noloop(agent: Agent) -> None:
    loop, noloop = agent.client(), agent.client(b"NOLOOP")
    for client in (loop, noloop):
        client.ask(b"GET", b"k")
        client.ask(b"SET", b"k", b"1")
        agent.turn()
    assert [b"k"] in _pushes(loop.told())
    assert _pushes(noloop.told()) == []
    noloop.ask(b"GET", b"k")
    agent.write(b"SET", b"k", b"2")
    assert _pushes(noloop.told()) == [[b"k"]]


def test_who_opts_in_is_told_only_of_what_follows_caching_yes(agent: Agent) -> None:
    client = agent.client(b"OPTIN")
    client.ask(b"GET", b"k1")
    client.send((b"CLIENT", b"CACHING", b"YES"), (b"GET", b"k2"), (b"GET", b"k3"))
    client.send((b"CLIENT", b"CACHING", b"YES"), (b"PING",), (b"GET", b"k4"))
    client.send((b"CLIENT", b"CACHING", b"YES"), (b"CLIENT", b"ID"), (b"GET", b"k5"))
    client.send((b"CLIENT", b"CACHING", b"YES"), (b"MULTI",), (b"GET", b"k6"), (b"EXEC",))
    client.send((b"MULTI",), (b"CLIENT", b"CACHING", b"YES"), (b"GET", b"k7"), (b"EXEC",))
    client.send((b"CLIENT", b"CACHING", b"YES"), (b"NOPE",), (b"GET", b"k8"))
    for number in range(1, 9):
        agent.write(b"SET", b"k%d" % number, b"x")
    assert _pushes(client.told()) == [[b"k2"], [b"k5"], [b"k6"], [b"k7"]]


def test_who_opts_out_is_not_told_of_what_follows_caching_no(agent: Agent) -> None:
    client = agent.client(b"OPTOUT")
    client.send((b"CLIENT", b"CACHING", b"NO"), (b"GET", b"k1"), (b"GET", b"k2"))
    client.send((b"CLIENT", b"CACHING", b"NO"), (b"NOPE",), (b"GET", b"k3"))
    for number in range(1, 4):
        agent.write(b"SET", b"k%d" % number, b"x")
    assert _pushes(client.told()) == [[b"k2"], [b"k3"]]


def test_who_broadcasts_is_told_of_keys_that_it_never_read(agent: Agent) -> None:
    client = agent.client(b"BCAST", b"PREFIX", b"a:", b"PREFIX", b"b:")
    everything = agent.client(b"BCAST", b"NOLOOP")
    agent.write(b"SET", b"a:1", b"x")
    agent.write(b"SET", b"c:1", b"x")
    agent.write(b"SET", b"b:1", b"x")
    told = everything.ask(b"SET", b"a:2", b"x")
    agent.turn()
    assert _pushes(client.told()) == [[b"a:1"], [b"b:1"], [b"a:2"]]
    assert _pushes(told + everything.told()) == [[b"a:1"], [b"c:1"], [b"b:1"]]


def test_who_broadcasts_forgets_everything_when_a_partition_goes_elsewhere(agent: Agent) -> None:
    client = agent.client(b"BCAST", b"PREFIX", b"a:")
    agent.give(OTHER, [1])
    assert _pushes(client.told()) == [None]
    agent.give(agent.me, [1])
    keys = [b"a:%d" % number for number in range(20)]
    for key in keys:
        agent.write(b"SET", key, b"x")
    assert _pushes(client.told()) == [[key] for key in keys]


def test_a_resp2_client_has_another_connection_told(agent: Agent) -> None:
    listener = agent.writer()
    [[_, _, _]] = listener.ask(b"SUBSCRIBE", INVALIDATIONS)
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number, resp3=False)
    assert client.ask(b"CLIENT", b"GETREDIR") == [int(number)]
    client.ask(b"GET", b"k")
    agent.write(b"SET", b"k", b"1")
    assert listener.told() == [[b"message", INVALIDATIONS, [b"k"]]]
    agent.write(b"FLUSHALL")
    assert listener.told() == [[b"message", INVALIDATIONS, None]]
    assert client.told() == []


@pytest.mark.parametrize("redirects", [False, True])
@pytest.mark.parametrize(
    "words", [(b"SET", b"k", b"1"), (b"GETDEL", b"k"), (b"MSET", b"k", b"1", b"{k}2", b"2")]
)
def test_who_writes_is_told_once(agent: Agent, redirects: bool, words: tuple[bytes, ...]) -> None:
    agent.write(b"SET", b"k", b"0")
    listener = agent.writer()
    listener.ask(b"HELLO", b"3")
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number) if redirects else agent.client()
    client.ask(b"GET", b"k")
    told = client.ask(*words)
    agent.turn()
    told += client.told()
    assert _pushes(listener.told() if redirects else told) == [[b"k"]]


@pytest.mark.parametrize("redirects", [False, True])
def test_who_writes_behind_a_read_that_waits_is_told_behind_that(
    agent: Agent, redirects: bool
) -> None:
    """It may keep what that reply shows: the old value."""
    listener = agent.writer()
    listener.ask(b"HELLO", b"3")
    number = b"%d" % listener.connection.state.id
    client = agent.client(b"REDIRECT", number) if redirects else agent.client()
    client.send((b"SET", b"x", b"1"), (b"GET", b"k"), (b"SET", b"k", b"1"))
    agent.written()
    assert _pushes(listener.told() if redirects else client.told()) == [[b"k"]]
    agent.turn()
    told = client.told()
    assert told[:2] == [b"OK", None]
    assert _pushes(listener.told() if redirects else told[2:]) == [[b"k"]]


def test_who_reads_and_writes_in_a_transaction_is_told_behind_its_reply(agent: Agent) -> None:
    client = agent.client()
    client.send((b"MULTI",), (b"GET", b"k"), (b"SET", b"k", b"1"), (b"EXEC",))
    agent.turn()
    told = client.told()
    assert told[-2] == [None, b"OK"]
    assert _pushes(told[-1:]) == [[b"k"]]


def test_the_other_connection_is_told_behind_a_reply_that_was_forwarded(agent: Agent) -> None:
    listener = agent.writer()
    listener.ask(b"SUBSCRIBE", INVALIDATIONS)
    client = agent.client(b"REDIRECT", b"%d" % listener.connection.state.id, resp3=False)
    agent.give(OTHER, range(4))
    client.ask(b"GET", b"k")
    agent.endpoint.settle()
    assert listener.told() == []
    agent.forwarded(client, b"$3\r\nold\r\n")
    assert client.told() == [b"old"]
    agent.endpoint.settle()
    assert listener.told() == [[b"message", INVALIDATIONS, [b"k"]]]


def test_a_redirection_to_a_connection_that_is_gone_is_said_to_be_broken(agent: Agent) -> None:
    listener = agent.writer()
    number = listener.connection.state.id
    client = agent.client(b"REDIRECT", b"%d" % number)
    client.ask(b"GET", b"k")
    listener.leave()
    agent.write(b"SET", b"k", b"1")
    assert client.told() == [[b"tracking-redir-broken", number]]
    [info] = client.ask(b"CLIENT", b"TRACKINGINFO")
    assert info[b"flags"] == [b"on", b"broken_redirect"]
    [line] = client.ask(b"CLIENT", b"INFO")
    assert b" flags=tR " in line
    assert b" redir=%d " % number in line


def test_nothing_is_told_after_tracking_has_ended(agent: Agent) -> None:
    ended, reset, left = agent.client(), agent.client(), agent.client()
    for client in (ended, reset, left):
        client.ask(b"GET", b"k")
    ended.ask(b"CLIENT", b"TRACKING", b"OFF")
    reset.ask(b"RESET")
    left.leave()
    agent.write(b"SET", b"k", b"1")
    assert ended.told() == reset.told() == left.told() == []


def test_a_zone_where_nobody_tracks_any_more_watches_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "LOOK_MS", 0)
    client = agent.client(b"BCAST")
    assert all(role.changed for role in agent.replicas.roles.values())
    client.leave()
    agent.turn()
    assert not any(role.changed for role in agent.replicas.roles.values())
    assert not agent.endpoint.overview.tracking.trackers


def test_a_transaction_that_fails_to_begin_tracking_leaves_nothing(agent: Agent) -> None:
    client = agent.writer()
    client.send((b"MULTI",), (b"CLIENT", b"TRACKING", b"ON", b"PREFIX", b"a"), (b"GET", b"k"))
    client.ask(b"EXEC")
    assert not any(role.changed for role in agent.replicas.roles.values())
    assert agent.endpoint.overview.tracking.note_count == 0


def test_beyond_a_number_of_keys_some_are_told_and_forgotten(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "NOTES_MAX", 100)
    client, other = agent.client(), agent.client()
    keys = [b"k%d" % number for number in range(150)]
    for each in (client, other):
        each.send(*[(b"GET", key) for key in keys])
        agent.turn()
        assert agent.endpoint.overview.tracking.note_count <= 100
    agent.writer().send(*[(b"SET", key, b"x") for key in keys])
    agent.turn()
    for each in (client, other):
        assert {key for told in _pushes(each.told()) for key in told} == {*keys}


def test_counts_are_those_of_the_keys_that_are_noted(agent: Agent) -> None:
    clients = [agent.client() for _ in range(3)]
    for client in clients:
        client.send((b"GET", b"k1"), (b"GET", b"k1"), (b"GET", b"k2"))
    counted = agent.endpoint.overview.tracking
    assert counted.note_count == 6
    agent.write(b"SET", b"k1", b"x")
    assert counted.note_count == 3
    agent.give(OTHER, range(4))
    assert counted.note_count == 0
