"""Transactions of one agent that is primary of everything: what it refuses, and what they keep."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quorate.facts.keyspace import RESERVED
from quorate.facts.topology import Holder
from quorate.protocol.copies.role_state import FrozenFor
from quorate.protocol.messages.clients import Forward
from quorate.protocol.messages.handshake import FRAME_BYTES_MAX
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.transactions import PartFinished, PartPrepared, PreparePart
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.transactions import coordinator
from quorate.protocol.transactions.parts import INDEX_KEY, part_key
from quorate.wire.frames import encode_frame
from quorate_agent.clients.connection import LONG_BYTES
from quorate_agent.commands.routing import across
from quorate_agent.process.farewell import see_transactions_end
from quorate_agent.resp import transaction
from quorate_agent.resp.commands.session import transactions
from quorate_agent.resp.transaction import CHANGED, NOT_WATCHED
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent, key_in


def _rest(agent: Agent) -> None:
    """No part and no lock is left."""
    for _ in range(3):
        agent.tick()
    assert not any(role.parts or role.locks for role in agent.replicas.roles.values())


def test_without_a_primary_of_the_home_a_prepared_transaction_is_given_up() -> None:
    agent = Agent()
    home, other = key_in(0), key_in(3)
    held = agent.replicas.primaries[3]
    assert held is not None
    held.locks[other] = b"another"
    client = agent.writer()
    client.send((b"MULTI",), (b"SET", home, b"1"), (b"SET", other, b"1"), (b"EXEC",))
    for _ in range(3):
        agent.tick(10)
    agent.lose_primary(0)
    held.locks.clear()
    agent.replicas.transactions.parts.waiting.unlocked(3)
    for _ in range(DEFAULTS.park_bound_ms // 100 + 10):
        agent.tick(100)

    said = client.told()
    assert [str(reply).split()[0] for reply in said] == ["CLUSTERDOWN"]
    assert not held.locks
    assert agent.writer().ask(b"GET", other) == [None]


# --- a transaction that changes the same large values again and again


@pytest.mark.parametrize("partitions", [(0,), (0, 3)], ids=["one partition", "over partitions"])
def test_how_often_a_transaction_writes_large_values_again_is_bounded(
    monkeypatch: pytest.MonkeyPatch, partitions: tuple[int, ...]
) -> None:
    monkeypatch.setattr(transaction, "REWRITTEN_BYTES_MAX", 10_000)
    agent = Agent()
    keys = [key_in(partition) for partition in partitions]
    for key in keys:
        agent.write(b"HSET", key, b"f", bytes(3000))
    client = agent.writer()
    four, three = [
        [(b"HSET", key, b"f%d" % n, b"v") for key in keys for n in range(times)] for times in (4, 3)
    ]

    refused = agent.execute(client, *four)
    assert "write values of more than 128 MiB again" in str(refused)
    assert [agent.writer().ask(b"HLEN", key) for key in keys] == [[1] for _ in keys]
    assert agent.execute(client, *three) == [1] * len(three)


def test_values_that_are_not_written_again_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "REWRITTEN_BYTES_MAX", 10_000)
    agent = Agent()
    key = key_in(0)
    agent.write(b"HSET", key, b"f", bytes(8000))
    same = [(b"HSET", key, b"f", bytes(9000))] * 6
    read = [(b"HGET", key, b"g")] * 5
    put = [(b"SET", b"{%b}s" % key, bytes(5000))] * 5

    assert agent.execute(agent.writer(), *same, *read, *put) == [0] * 6 + [None] * 5 + [b"OK"] * 5


# --- a WATCH that was not executed


def _moves(agent: Agent) -> None:
    agent.give(OTHER, [1])


def _has_no_primary(agent: Agent) -> None:
    agent.lose_primary(1)


@pytest.mark.parametrize("happens", [_moves, _has_no_primary])
def test_a_transaction_behind_a_watch_that_was_not_executed_is_not_executed(
    happens: Callable[[Agent], None],
) -> None:
    agent = Agent()
    here, watched = key_in(0), key_in(1)
    happens(agent)
    client = agent.writer()
    said = client.send((b"WATCH", watched), (b"MULTI",), (b"SET", here, b"new"), (b"EXEC",))
    agent.tick(DEFAULTS.park_bound_ms)
    said += client.told()

    watch, multi, queued, ended = [str(each) for each in said]
    assert watch.split()[0] in ("MOVED", "CLUSTERDOWN")
    assert multi == "b'OK'"
    assert queued == NOT_WATCHED[1:-2].decode()
    assert ended.startswith("EXECABORT")
    assert agent.writer().ask(b"GET", here) == [None]
    assert agent.execute(client, (b"SET", here, b"new")) == [b"OK"]


@pytest.mark.parametrize("word", [b"UNWATCH", b"RESET"])
def test_it_holds_until_the_client_gives_up_what_it_watches(word: bytes) -> None:
    agent = Agent()
    agent.give(OTHER, [1])
    client = agent.writer()
    _, _, _, queued, _ = client.send(
        (b"WATCH", key_in(1)), (word,), (b"MULTI",), (b"SET", key_in(0), b"new"), (b"DISCARD",)
    )

    assert queued == b"QUEUED"


def _ended(agent: Agent, client: KeptClient, *commands: tuple[bytes, ...]) -> Any:
    """The reply to the last of commands that are sent in one go."""
    said = client.send(*commands)
    for _ in range(3):
        agent.turn()
    return [*said, *client.told()][-1]


def test_it_holds_for_what_was_sent_before_the_client_could_know() -> None:
    agent = Agent()
    agent.give(OTHER, [1])
    change = ((b"MULTI",), (b"SET", key_in(0), b"new"), (b"EXEC",))
    client = agent.writer()
    last = _ended(agent, client, (b"WATCH", key_in(1)), (b"MULTI",))
    assert last == b"OK"
    assert "EXECABORT" in str(_ended(agent, client, *change[1:]))


@pytest.mark.parametrize("behind", [(b"MULTI",), (b"WATCH", key_in(2)), (b"watch", key_in(2))])
def test_it_holds_for_what_arrives_in_a_later_read(behind: tuple[bytes, ...]) -> None:
    agent = Agent()
    agent.give(OTHER, [1])
    change = ((b"SET", key_in(0), b"new"), (b"EXEC",))
    begins = [behind] if behind == (b"MULTI",) else [behind, (b"MULTI",)]
    client = agent.writer()
    assert "MOVED" in str(client.ask(b"WATCH", key_in(1)))

    said = client.send(*begins, *change)
    assert NOT_WATCHED[1:-2].decode() in map(str, said)
    assert "EXECABORT" in str(said[-1])
    assert _ended(agent, client, (b"MULTI",), *change) == [b"OK"]


@pytest.mark.parametrize("is_long", [False, True])
def test_it_ends_with_another_command_or_with_time(is_long: bool) -> None:
    agent = Agent()
    agent.give(OTHER, [1])
    padding = bytes(LONG_BYTES if is_long else 1)
    change = ((b"MULTI",), (b"SET", key_in(0), padding), (b"EXEC",))
    client = agent.writer()
    client.ask(b"WATCH", key_in(1))
    client.ask(b"ECHO", padding)  # a pool gives the connection to somebody else now
    assert _ended(agent, client, *change) == [b"OK"]

    client.ask(b"WATCH", key_in(1))
    agent.tick(DEFAULTS.park_bound_ms // 2)
    assert "EXECABORT" in str(_ended(agent, client, *change))

    client.ask(b"WATCH", key_in(1))
    agent.tick(DEFAULTS.park_bound_ms)
    assert _ended(agent, client, *change) == [b"OK"]


def test_what_is_divided_within_a_command_counts_by_its_first() -> None:
    agent = Agent()
    agent.give(OTHER, [1])
    client = agent.writer()
    client.ask(b"WATCH", key_in(1))
    client.connection.data_received(b"*1\r\n$5\r\nmu")
    client.connection.data_received(b"lti\r\n")
    client.send((b"SET", key_in(0), b"new"), (b"EXEC",))
    agent.turn()

    assert agent.writer().ask(b"GET", key_in(0)) == [None]


def test_a_refused_watch_counts_until_its_keys_are_watched() -> None:
    agent = Agent()
    key, lost = key_in(1), key_in(3)
    change = ((b"MULTI",), (b"SET", b"{%b}x" % key, b"new"), (b"EXEC",))
    agent.lose_primary(3)
    for again, executed in ((key_in(0), False), (key, True)):
        agent.give(OTHER, [1])
        client = agent.writer()
        said = client.send((b"WATCH", key), (b"GET", lost), (b"WATCH", again), *change)
        agent.give(agent.me, [1])
        agent.tick(DEFAULTS.park_bound_ms)
        for _ in range(3):
            agent.turn()
        first, _, watched, *_, ended = said + client.told()

        assert str(first).startswith("MOVED")
        assert watched == b"OK"
        assert ended == [b"OK"] if executed else str(ended).startswith("EXECABORT")


def test_a_watch_that_is_refused_late_does_not_count_for_later_transactions() -> None:
    agent = Agent()
    key, lost, here = key_in(1), key_in(3), key_in(0)
    agent.lose_primary(3)
    client = agent.writer()
    agent.writer().send((b"SET", key, b"not acknowledged yet"))
    client.send(
        (b"WATCH", key),
        (b"UNWATCH",),
        (b"GET", lost),
        (b"MULTI",),
        (b"SET", here, b"1"),
        (b"EXEC",),
    )
    agent.give(OTHER, [1])
    agent.tick(DEFAULTS.park_bound_ms)
    agent.turn()
    watch, *_, ended = client.told()

    assert str(watch).startswith("MOVED")
    assert ended == [b"OK"]


def test_a_transaction_that_is_forwarded_behind_a_watch_refused_late_is_not_executed() -> None:
    agent = Agent()
    key = key_in(1)
    client = agent.writer()
    agent.writer().send((b"SET", key, b"not acknowledged yet"))
    client.send((b"WATCH", key), (b"MULTI",), (b"GET", key), (b"EXEC",))
    agent.give(OTHER, [1])
    agent.turn()
    (forwarded,) = [message for message in agent.sent if isinstance(message, Forward)]

    assert "MOVED" in str(client.told()[0])
    assert forwarded.watched == ((key, *CHANGED),)


# --- the order of a connection's commands


@pytest.mark.parametrize("partitions", [(0, 3), (0,)], ids=["over-partitions", "parked"])
def test_what_comes_behind_a_transaction_that_waits_waits_behind_it(
    partitions: tuple[int, ...],
) -> None:
    agent = Agent()
    keys = [key_in(partition) for partition in partitions]
    free = key_in(1)
    agent.write(b"SET", free, b"old")
    held = agent.replicas.primaries[0]
    assert held is not None
    held.frozen = FrozenFor("a migration", 0) if len(partitions) == 1 else None
    client, other = agent.writer(), agent.writer()

    said = client.send(
        (b"MULTI",),
        *[(b"SET", key, b"new") for key in keys],
        (b"EXEC",),
        (b"SET", free, b"new"),
        (b"GET", keys[-1]),
    )
    assert other.ask(b"GET", free) == [b"old"]
    held.frozen = None
    for _ in range(4):
        agent.turn()

    queued = [b"OK", *[b"QUEUED" for _ in keys]]
    assert said + client.told() == [*queued, [b"OK" for _ in keys], b"OK", b"new"]
    assert other.ask(b"GET", free) == [b"new"]


# --- reserved keys


@pytest.mark.parametrize(
    "words",
    [
        (b"GET", INDEX_KEY),
        (b"SET", INDEX_KEY, b"x"),
        (b"DEL", INDEX_KEY),
        (b"MGET", INDEX_KEY),
        (b"RENAME", b"{k}", part_key(b"{k}")),
        (b"COPY", part_key(b"{k}"), b"{k}"),
        (b"WATCH", INDEX_KEY),
        (b"OBJECT", b"ENCODING", INDEX_KEY),
    ],
    ids=lambda words: words[0].decode(),
)
def test_keys_of_the_protocol_are_no_clients_keys(words: tuple[bytes, ...]) -> None:
    agent = Agent()
    client = agent.writer()
    (reply,) = client.ask(*words)
    assert "are reserved" in str(reply)
    client.ask(b"MULTI")
    if words[0] != b"WATCH":
        assert "are reserved" in str(client.ask(*words)[0])
        assert "EXECABORT" in str(client.ask(b"EXEC")[0])


def test_keys_that_only_resemble_those_are_free() -> None:
    agent = Agent()
    for key in (b"", b"\0", RESERVED[:-1], RESERVED[1:], b"x" + RESERVED):
        client = agent.writer()
        client.ask(b"SET", key, b"v")
        agent.turn()
        assert client.told() == [b"OK"]


# --- sizes


def test_what_a_part_asks_and_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are told beside its commands, and kept beside what they write and answer."""
    monkeypatch.setattr(across, "PART_BYTES_MAX", 4000)
    agent = Agent()
    client, other = agent.writer(), (b"SET", key_in(1), b"v")
    long = key_in(0, b"x" * 1500)
    assert "more than" in str(agent.execute(client, (b"SET", long, bytes(1500)), other))
    assert agent.execute(client, (b"SET", long, b""), other) == [b"OK", b"OK"]
    asked = (b"APPEND", long, bytes(1000)), (b"GET", long), other
    assert "more than" in str(agent.execute(client, *asked))
    _rest(agent)


def test_what_is_asked_of_a_part_is_estimated_generously() -> None:
    words = ((b"RPUSH", b"k", *[b"1"] * 10_000), (b"SET", bytes(300), bytes(70_000)))
    watched = tuple([(b"%d" % number, 1 << 40, 1 << 40) for number in range(1000)])
    keys = (b"k", bytes(300), *[key for key, _, _ in watched])
    holder = Holder("a", "s-a.1", 1)
    ask = PreparePart("uid", b"name", 0, 0, holder, keys, words, watched, False)
    bytes_max = across.part_wanted(0, keys, words, watched).byte_count
    assert len(encode_frame(ask)) - 100 < bytes_max < FRAME_BYTES_MAX
    assert across.PART_BYTES_MAX < FRAME_BYTES_MAX - 1024 * 1024


def test_answers_of_all_parts_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "ANSWERS_BYTES_MAX", 3500)
    agent = Agent()
    client = agent.writer()
    for partition in range(4):
        agent.write(b"SET", key_in(partition), bytes(1000))
    gets = [(b"GET", key_in(partition)) for partition in range(4)]
    assert "more than" in str(agent.execute(client, *gets))
    assert agent.execute(client, *gets[:3]) == [bytes(1000)] * 3
    _rest(agent)


def test_watched_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "WATCHED_BYTES_MAX", 1000)
    client = Agent().writer()
    assert client.ask(b"WATCH", bytes(600)) == [b"OK"]
    assert "watched keys" in str(client.ask(b"WATCH", b"x" * 600)[0])
    assert client.ask(b"WATCH", b"k") == [b"OK"]


def test_a_transaction_behind_a_watch_of_too_much_is_not_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "WATCHED_BYTES_MAX", 1000)
    agent = Agent()
    client = agent.writer()
    change = ((b"MULTI",), (b"SET", b"k", b"new"), (b"EXEC",))
    said = client.send((b"WATCH", bytes(1100)), (b"WATCH", b"k"), *change)
    agent.turn()
    refused, *_, ended = [*said, *client.told()]

    assert "watched keys" in str(refused)
    assert str(ended).startswith("EXECABORT")
    assert agent.execute(client, change[1]) == [b"OK"]


# --- what is said again


def _said(agent: Agent, kind: type[Message]) -> int:
    """How often it was said to other agents since it was last asked."""
    said = [message for _, message in agent.said if isinstance(message, kind)]
    agent.said.clear()
    return len(said)


def test_a_large_part_is_asked_for_again_when_it_may_have_arrived() -> None:
    agent = Agent(memory_bytes=1 << 26)
    agent.give(OTHER, [0])
    client = agent.writer()
    client.send((b"WATCH", key_in(1)), (b"MULTI",), (b"SET", key_in(0), b"v"), (b"GET", key_in(1)))
    client.ask(b"EXEC")
    agent.turn()
    assert _said(agent, PreparePart) == 1
    agent.tick(after_ms=DEFAULTS.step_retry_ms)
    assert _said(agent, PreparePart) == 1

    large = agent.writer()
    large.send((b"WATCH", key_in(1)), (b"MULTI",), (b"SET", key_in(0), bytes(10_000_000)))
    for _ in range(50):
        agent.turn()
    large.send((b"GET", key_in(1)), (b"EXEC",))
    agent.turn()
    _said(agent, PreparePart)
    agent.tick(after_ms=2 * DEFAULTS.step_retry_ms)
    assert _said(agent, PreparePart) == 1  # of the first
    agent.tick(after_ms=1000)
    assert _said(agent, PreparePart) == 2


@pytest.mark.parametrize(("byte_count", "times"), [(10, 3), (1_000_000, 1)])
def test_large_answers_are_told_again_when_they_may_have_arrived(
    byte_count: int, times: int
) -> None:
    agent = Agent(memory_bytes=1 << 26)
    agent.write(b"SET", key_in(1), bytes(byte_count))
    ask = PreparePart(
        "uid-1", b"name", 1, 0, OTHER, (key_in(1),), ((b"GET", key_in(1)),), (), False
    )
    for _ in range(3):
        agent.receive(OTHER.node, ask)
    assert _said(agent, PartPrepared) == times
    agent.tick(after_ms=100)
    agent.receive(OTHER.node, ask)
    assert _said(agent, PartPrepared) == 1


def test_an_agent_that_ends_lets_its_transactions_end_first() -> None:
    agent = Agent()
    agent.give(OTHER, [0])
    client = agent.writer()
    client.send((b"WATCH", key_in(1)), (b"MULTI",), (b"SET", key_in(0), b"v"), (b"GET", key_in(1)))
    client.ask(b"EXEC")
    agent.turn()
    ask = next(message for _, message in agent.said if isinstance(message, PreparePart))
    refused = PartPrepared(ask.zone, ask.transaction, 0, 0, 0, 0, (), b"-ERR no\r\n")

    async def end() -> None:
        ending = asyncio.create_task(see_transactions_end({"uid-1": agent.replicas}))
        await asyncio.sleep(0)
        assert not ending.done()
        agent.receive(OTHER.node, refused)
        for partition in (0, 1):
            done = PartFinished(ask.zone, ask.transaction, partition, 0)
            agent.receive(OTHER.node, done)
        await ending
        assert not agent.replicas.transactions.coordinates

    asyncio.run(end())
    assert "no" in str(client.told()[0])


# --- HELLO among the commands


@pytest.mark.parametrize("begins", [2, 3])
@pytest.mark.parametrize("ends", [2, 3])
def test_replies_behind_a_hello_in_a_transaction_are_of_its_protocol(
    begins: int, ends: int
) -> None:
    agent = Agent()
    key = key_in(0)
    agent.write(b"HSET", key, b"f", b"v")
    kinds = {2: [b"f", b"v"], 3: {b"f": b"v"}}
    read = (b"HGETALL", key)
    client = agent.writer()

    said = client.send(
        (b"HELLO", b"%d" % begins),
        (b"MULTI",),
        read,
        (b"HELLO", b"%d" % ends),
        (b"HELLO", b"4"),
        read,
        (b"EXEC",),
        read,
    )

    *_, (before, _, _, behind), last = said
    assert before == kinds[begins]
    assert behind == last == kinds[ends]


def test_over_partitions_a_hello_is_refused_with_its_transaction() -> None:
    agent = Agent()
    home, other = key_in(0), key_in(3)
    client = agent.writer()
    refused = agent.execute(client, (b"SET", home, b"v"), (b"HELLO", b"3"), (b"SET", other, b"v"))
    assert "HELLO" in str(refused)
    assert client.ask(b"MGET", home) == [[None]]
    assert agent.execute(client, (b"SET", home, b"v"), (b"SET", other, b"v")) == [b"OK"] * 2
