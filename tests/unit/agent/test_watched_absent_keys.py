"""WATCH of a key that is absent: EXEC knows whether it came and went."""

import pytest

from quorate.protocol.copies import copy as copy_module
from quorate.protocol.copies.copy import decode_update
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.transactions import PartPrepared, PreparePart
from quorate.protocol.settings import DEFAULTS
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in


@pytest.mark.parametrize("partitions", [(0,), (0, 3)], ids=["one-partition", "across"])
def test_a_key_that_came_and_was_flushed_has_changed(partitions: tuple[int, ...]) -> None:
    agent = Agent()
    keys = [key_in(partition) for partition in partitions]
    client = agent.writer()
    assert client.ask(b"WATCH", keys[-1]) == [b"OK"]
    agent.write(b"SET", keys[-1], b"v")
    assert client.ask(b"GET", keys[-1]) == [b"v"]
    agent.write(b"FLUSHALL")
    assert agent.execute(client, *[(b"SET", key, b"mine") for key in keys]) is None


@pytest.mark.parametrize("flushes", [1, 2])
@pytest.mark.parametrize("partitions", [(0,), (0, 3)], ids=["one-partition", "across"])
def test_a_key_that_stays_absent_is_not_changed_by_a_flush(
    partitions: tuple[int, ...], flushes: int
) -> None:
    agent = Agent()
    keys = [key_in(partition) for partition in partitions]
    client = agent.writer()
    agent.write(b"SET", keys[-1], b"v")
    agent.write(b"DEL", keys[-1])
    client.ask(b"WATCH", *keys[-1:])
    agent.turn()
    for number in range(flushes):
        agent.write(b"SET", key_in(partitions[-1], b"o%d-" % number), b"v")
        agent.write(b"FLUSHALL")
    assert agent.execute(client, *[(b"SET", key, b"mine") for key in keys]) == [b"OK"] * len(keys)


def test_a_key_that_came_between_two_flushes_has_changed() -> None:
    agent, key = Agent(), key_in(0)
    client = agent.writer()
    assert client.ask(b"WATCH", key) == [b"OK"]
    for words in ((b"FLUSHALL",), (b"SET", key, b"v"), (b"FLUSHALL",)):
        agent.write(*words)
    assert agent.execute(client, (b"SET", key, b"mine")) is None


def test_a_key_may_have_changed_when_the_log_ends_behind_a_flush() -> None:
    """Nothing tells any more what was removed there."""
    agent, key = Agent(), key_in(0)
    client = agent.writer()
    assert client.ask(b"WATCH", key) == [b"OK"]
    agent.write(b"FLUSHALL")
    copy = agent.replicas.copies[0]
    copy.cut_log(copy.lwm)
    agent.replicas.touch(copy)
    agent.turn()
    assert agent.execute(client, (b"SET", key, b"mine")) is None


def test_a_key_that_came_and_went_has_changed_also_behind_a_turn_without_room() -> None:
    """What was settled is not known any more then, as in a process that has just started."""
    agent = Agent()
    key = key_in(0)
    client = agent.writer()
    assert client.ask(b"WATCH", key) == [b"OK"]
    agent.write(b"SET", key, b"v")
    assert client.ask(b"GET", key) == [b"v"]
    agent.write(b"DEL", key)
    for _ in range(2):  # its tombstone goes
        agent.tick(2 * DEFAULTS.announce_ms)
    agent.write(b"SET", key_in(0, b"o"), bytes(2 << 20))  # more than there is room for
    assert agent.execute(client, (b"SET", key, b"mine")) is None


def test_the_updates_since_are_read_once_for_all_watched_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent()
    watching = agent.writer()
    others = [key_in(0, b"o%d-" % number) for number in range(20)]
    for number in range(50):  # each at another position
        assert watching.ask(b"WATCH", key_in(0, b"w%d-" % number)) == [b"OK"]
        agent.write(b"SET", others[number % 20], b"v")
    agent.tick(2 * DEFAULTS.announce_ms)  # every copy is past them: a tombstone could be gone
    decoded: list[int] = []

    def note(raw: bytes) -> Update:
        decoded.append(len(raw))
        return decode_update(raw)

    monkeypatch.setattr(copy_module, "decode_update", note)

    assert agent.execute(watching, (b"SET", others[0], b"mine")) == [b"OK"]
    assert len(decoded) == 50


def test_what_a_refused_watch_saw_is_not_compared() -> None:
    """Counters of a turn that found no room are given out again."""
    agent = Agent(32 << 10)
    key = key_in(0)
    client, other = agent.writer(), agent.writer()
    other.ask(b"SET", key, bytes(48 << 10))  # executed at once, and too much at the turn's end
    client.ask(b"WATCH", key)
    agent.turn()
    assert "OOM" in str(other.told()[0])
    assert client.told() == [b"OK"]  # it has looked once more
    assert client.ask(b"GET", key) == [None]
    agent.write(b"SET", key, b"theirs")
    assert agent.execute(client, (b"SET", key, b"mine")) is None
    assert client.ask(b"GET", key) == [b"theirs"]


@pytest.mark.parametrize("is_own", [True, False])
def test_a_key_that_goes_as_it_is_watched_has_not_changed(is_own: bool) -> None:
    agent, key = Agent(), key_in(0)
    agent.write(b"SET", key, b"v")
    client = agent.writer()
    (client if is_own else agent.writer()).ask(b"DEL", key)
    client.ask(b"WATCH", key)
    agent.turn()
    assert client.told()[-1] == b"OK"
    assert agent.execute(client, (b"SET", key, b"mine")) == [b"OK"]


def test_a_key_that_was_flushed_before_it_is_watched_has_not_changed() -> None:
    agent, key = Agent(), key_in(0)
    agent.write(b"SET", key, b"v")
    agent.write(b"FLUSHALL")
    client = agent.writer()
    client.ask(b"WATCH", key)
    assert agent.execute(client, (b"SET", key, b"mine")) == [b"OK"]


def test_a_key_that_has_expired_when_it_is_watched_has_not_changed() -> None:
    agent, key = Agent(), key_in(0)
    agent.write(b"SET", key, b"v", b"EX", b"60")
    agent.client().ask(b"GET", key)  # who is told of it first
    agent.clock.wall_ahead_ms = 61_000
    client = agent.writer()
    client.ask(b"WATCH", key)
    agent.turn()
    assert client.told() == [b"OK"]
    assert agent.execute(client, (b"SET", key, b"mine")) == [b"OK"]


def test_an_absent_key_can_be_watched_behind_a_turn_without_room_and_a_cut_of_the_log() -> None:
    agent, key, other = Agent(), key_in(0), key_in(0, b"o")
    for _ in range(5):
        agent.write(b"SET", other, b"v")
    copy = agent.replicas.copies[0]
    copy.cut_log(copy.lwm)
    agent.replicas.touch(copy)
    agent.turn()
    agent.write(b"SET", other, bytes(2 << 20))  # more than there is room for
    client = agent.writer()
    client.ask(b"WATCH", key)
    assert agent.execute(client, (b"SET", key, b"mine")) == [b"OK"]


@pytest.mark.parametrize("partitions", [(0,), (0, 3)], ids=["one-partition", "across"])
def test_a_key_that_has_expired_before_is_not_changed_by_its_removal(
    partitions: tuple[int, ...],
) -> None:
    agent = Agent()
    keys = [key_in(partition) for partition in partitions]
    agent.write(b"SET", keys[-1], b"v", b"PX", b"1000")
    agent.clock.wall_ahead_ms += 2_000
    client = agent.writer()
    client.ask(b"WATCH", keys[-1])
    agent.turn()
    assert client.told() == [b"OK"]
    role = agent.replicas.primaries[partitions[-1]]
    assert role is not None
    if role.copy.expiring.due:  # as the primary's upkeep does
        role.write(((keys[-1], None, 0),))
        agent.replicas.commands_wrote(role)
        agent.turn()

    ended = agent.execute(client, *[(b"SET", key, b"mine") for key in keys])
    assert ended == [b"OK"] * len(keys)


def test_a_key_that_another_agent_watches_here_is_removed_first_if_it_has_expired() -> None:
    agent, key = Agent(), key_in(0)
    agent.write(b"SET", key, b"v", b"PX", b"1000")
    agent.clock.wall_ahead_ms += 2_000
    agent.receive("b", PreparePart(ZONE.uid, b"t", 0, 0, OTHER, (key,), (), (), False))

    ((_, told),) = [each for each in agent.said if isinstance(each[1], PartPrepared)]
    assert isinstance(told, PartPrepared)
    term, counter = told.answers[0].split()
    assert (term, int(counter)) == (b"0", agent.replicas.copies[0].lwm)
    row = agent.replicas.copies[0].get(key)
    assert row is not None
    assert row.value is None


def test_only_what_has_expired_makes_watch_ask_for_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    key, expires = key_in(0), key_in(1)
    agent.write(b"SET", key, b"v")
    agent.write(b"SET", expires, b"v", b"PX", b"1000")
    agent.clock.wall_ahead_ms += 2_000
    asked: list[int] = []
    monkeypatch.setattr(agent.endpoint.answers, "turn", lambda: asked.append(1))
    agent.writer().ask(b"WATCH", key)
    assert not asked

    agent.writer().ask(b"WATCH", expires)
    assert asked
