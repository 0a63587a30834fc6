"""SLOWLOG: which commands are in it, with the time of their execution alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quorate_agent.resp.slow_log import ENTRIES_MAX
from quorate_agent.resp.tables.table import DISPATCH
from quorate_agent.resp.transaction import Call
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in

SLOW_S = 0.02
"""More than what is logged unless told otherwise."""


class _Timed(Agent):
    """An agent on which time passes only while slow commands are executed."""

    def __init__(self) -> None:
        super().__init__(memory_bytes=1 << 26)
        self.now_s = 0.0
        share = self.endpoint._share
        share._clock = self.endpoint._passed_s = lambda: self.now_s
        share.begin({})

    def log(self) -> list[list[Any]]:
        """Return the entries that SLOWLOG shows."""
        (entries,) = self.writer().ask(b"SLOWLOG", b"GET", b"-1")
        return list(entries)

    def words(self) -> list[list[bytes]]:
        """The words of its entries, the oldest first."""
        return [entry[3] for entry in reversed(self.log())]


@pytest.fixture
def agent() -> _Timed:
    return _Timed()


@pytest.fixture
def make_slow(agent: _Timed, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Have a command take SLOW_S."""

    def slow_down(name: bytes) -> None:
        command = DISPATCH[name]

        def handler(*args: Any) -> Any:
            agent.now_s += SLOW_S
            return command.handler(*args)

        monkeypatch.setitem(DISPATCH, name, replace(command, handler=handler))

    return slow_down


def test_a_slow_command_is_logged_and_others_are_not(
    agent: _Timed, make_slow: Callable[[bytes], None]
) -> None:
    make_slow(b"APPEND")
    client = agent.writer()
    client.ask(b"CLIENT", b"SETNAME", b"me")
    client.send((b"SET", b"k", b"v"), (b"APPEND", b"k", b"w"), (b"GET", b"k"), (b"PING",))
    agent.turn()

    ((number, at_s, micros, words, address, name),) = agent.log()

    assert (number, words, name) == (0, [b"APPEND", b"k", b"w"], b"me")
    assert micros == pytest.approx(SLOW_S * 1_000_000, abs=1)
    assert abs(at_s - agent.clock.wall_ms() / 1000) < 60
    assert address == agent.endpoint.overview.clients[client.connection.state.id].addr.encode()


@pytest.mark.parametrize("place", ["first", "last", "alone"])
def test_it_does_not_matter_where_in_a_pipeline_a_slow_command_is(
    agent: _Timed, make_slow: Callable[[bytes], None], place: str
) -> None:
    make_slow(b"STRLEN")
    slow, others = (b"STRLEN", b"k"), [] if place == "alone" else [(b"TTL", b"k")] * 3
    client = agent.writer()

    client.send(*([slow, *others] if place == "first" else [*others, slow]))

    assert agent.words() == [[*slow]]


def test_each_command_of_a_pipeline_is_timed_by_itself(
    agent: _Timed, make_slow: Callable[[bytes], None]
) -> None:
    make_slow(b"STRLEN")
    client = agent.writer()
    client.ask(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"%d" % (SLOW_S * 1.5 * 1_000_000))

    client.send(*[(b"STRLEN", b"k")] * 2)
    agent.turn()
    client.send((b"TTL", b"k"), (b"STRLEN", b"k"), (b"TTL", b"k"))

    assert agent.words() == []


def test_waiting_for_copies_or_the_disk_does_not_count(agent: _Timed) -> None:
    client = agent.writer()
    client.ask(b"SET", b"k", b"v")
    agent.now_s += 10

    agent.turn()

    assert client.told() == [b"OK"]
    assert agent.log() == []


def test_a_command_that_waited_for_a_primary_is_logged_if_its_execution_was_slow(
    agent: _Timed, make_slow: Callable[[bytes], None]
) -> None:
    make_slow(b"STRLEN")
    client = agent.writer()
    agent.up.discard("b")
    agent.give(OTHER, range(ZONE.partitions))
    client.send((b"STRLEN", b"k"), (b"TTL", b"k"))
    assert agent.log() == []

    agent.give(agent.me, range(ZONE.partitions))
    agent.tick()

    assert client.told() == [0, -2]
    entry = agent.log()[0]
    assert entry[2] == pytest.approx(SLOW_S * 1_000_000, abs=1)


def test_a_command_of_another_agent_is_timed_from_when_it_is_executed(agent: _Timed) -> None:
    client = agent.writer()
    client.ask(b"PING")
    agent.now_s += 1

    agent.endpoint.execute_forwarded(client.connection, Call(DISPATCH[b"TTL"], [b"TTL", b"k"]))

    assert client.told() == [-2]
    agent.turn()
    assert agent.log() == []


def test_a_transaction_is_one_entry_with_its_keys(
    agent: _Timed, make_slow: Callable[[bytes], None]
) -> None:
    make_slow(b"APPEND")
    client = agent.writer()
    key = key_in(0)

    client.send((b"MULTI",), (b"APPEND", key, b"w"), (b"EXEC",))
    agent.turn()

    assert agent.words() == [[b"exec", key]]


def test_keys_is_logged_with_the_time_of_all_its_steps(
    agent: _Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = agent.writer()
    client.send(*[(b"SET", b"k%d" % number, b"v") for number in range(100)])
    agent.turn()
    lists = agent.endpoint._key_lists
    looks = iter(range(100))
    monkeypatch.setattr(lists, "_clock", lambda: next(looks) * SLOW_S)

    client.ask(b"KEYS", b"*")
    for _ in range(ZONE.partitions):
        agent.turn()

    client.told()
    (entry,) = agent.log()
    assert entry[3] == [b"KEYS", b"*"]
    assert entry[2] >= ZONE.partitions * SLOW_S * 1_000_000 * 0.99


def test_a_read_of_a_long_value_alone_is_timed(
    agent: _Timed, make_slow: Callable[[bytes], None]
) -> None:
    agent.write(b"SET", b"k", b"x" * 100_000)
    make_slow(b"GET")
    client = agent.writer()

    client.ask(b"GET", b"k")

    assert agent.words() == [[b"GET", b"k"]]


def test_each_command_is_logged_if_all_are_to_be(agent: _Timed) -> None:
    client = agent.writer()
    client.ask(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0")
    client.ask(b"SLOWLOG", b"RESET")
    sent = [
        *[(b"SET", b"{t}%d" % number, b"v") for number in range(3)],
        *[(b"GET", b"{t}%d" % number) for number in range(3)],
        *[(b"INCR", b"{t}n%d" % number) for number in range(3)],
        (b"INCR", b"n"),
        (b"INCR", b"n"),
    ]
    client.send(*sent)
    agent.turn()
    client.told()
    client.ask(b"GET", b"k1")

    assert agent.words()[1:] == [[*words] for words in [*sent, (b"GET", b"k1")]]


def test_the_newest_entries_are_kept_and_long_words_are_cut(agent: _Timed) -> None:
    client = agent.writer()
    client.ask(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0", b"slowlog-max-len", b"2")
    client.ask(b"ECHO", b"x" * 200)
    client.ask(b"EXISTS", *[b"{a}%d" % number for number in range(40)])

    first, second = agent.words()

    assert first == [b"ECHO", b"x" * 128 + b"... (72 more bytes)"]
    assert len(second) == 32
    assert second[-2:] == [b"{a}29", b"... (10 more arguments)"]


def test_no_more_entries_are_kept_than_memory_is_meant_for(agent: _Timed) -> None:
    client = agent.writer()

    (told,) = client.ask(b"CONFIG", b"SET", b"slowlog-max-len", b"%d" % (ENTRIES_MAX + 1))

    assert f"must be between 0 and {ENTRIES_MAX} inclusive" in str(told)
