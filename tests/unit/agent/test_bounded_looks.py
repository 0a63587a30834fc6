"""Commands that look at rows look at few in one turn, dead ones included, and read no long values
for keys alone."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.facts.keyspace import key_slot
from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import Row
from quorate_agent.commands.zone.key_lists import STEP_MATCH_STEPS, STEP_ROWS, STEP_S
from quorate_agent.resp.commands.keyspace import scan as scan_commands
from quorate_agent.resp.reading.scan_arguments import MATCH_STEPS_MAX
from quorate_agent.resp.scan import ScanChunk
from quorate_agent.resp.stepped import FIRST_ROWS
from quorate_agent.storage.rocks import RocksStorage
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent import agent as lone_agent
from quorate_lone_agent.agent import OTHER, Agent, key_in

TAGGED = b"{t}"
PARTITION = key_slot(TAGGED) // 4096
MANY = FIRST_ROWS + 6 * STEP_ROWS


class LookingAgent(Agent):
    """An agent that makes one step a turn; `looks` has how many rows each look was at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(memory_bytes=1 << 26)
        self.looks: list[int] = []
        lists, scan = self.endpoint._key_lists, self.endpoint.overview.scan
        times = itertools.count()

        def look(*asked: Any, **kinds: bool) -> ScanChunk:
            chunk = scan(*asked, **kinds)
            self.looks.append(len(chunk.looked_at))
            return chunk

        monkeypatch.setattr(lists, "_clock", lambda: 2 * next(times) * STEP_S)
        monkeypatch.setattr(self.endpoint.overview, "scan", look)
        monkeypatch.setattr(lists, "_scan", look)

    def role(self, partition: int = PARTITION) -> Primary:
        """The primary of this partition."""
        role = self.replicas.primaries[partition]
        assert role is not None
        return role

    def fill(self, count: int, value: bytes | None = b"v", expires_at: int = 0) -> None:
        """Rows of one slot; value None: tombstones."""
        space = self.role().copy.space
        for number in range(count):
            space.put(TAGGED + b"%06d" % number, Row(1, 1, expires_at, value))

    def reply(self, client: KeptClient, *words: bytes) -> tuple[Any, list[int]]:
        """What is answered, and how many rows each turn looked at."""
        self.looks.clear()
        found, turns = client.ask(*words), [sum(self.looks)]
        while not found:
            assert len(turns) < 100, "never answered"
            self.looks.clear()
            self.endpoint.settle()
            turns.append(sum(self.looks))
            found = client.told()
        (reply,) = found
        return reply, turns


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> LookingAgent:
    return LookingAgent(monkeypatch)


def _scanned(agent: LookingAgent, client: KeptClient, *words: bytes) -> Iterator[list[bytes]]:
    cursor = b"0"
    while True:
        ((cursor, keys), _) = agent.reply(client, b"SCAN", cursor, *words)
        yield keys
        if cursor == b"0":
            return


# --- rows that are not live


def test_a_page_of_a_scan_looks_at_as_many_dead_rows_as_live_ones(agent: LookingAgent) -> None:
    agent.fill(MANY, None)
    last = TAGGED + b"last"
    agent.write(b"SET", last, b"v")
    client, looked_at, found = agent.writer(), [], []
    for keys in _scanned(agent, client, b"COUNT", b"100"):
        looked_at.append(sum(agent.looks))
        found += keys
    assert found == [last]
    assert max(looked_at) == 100
    assert sum(looked_at) == MANY + 1


@pytest.mark.parametrize("dead", [None, b"expired"])
def test_a_random_key_behind_dead_rows_is_found_in_steps(
    agent: LookingAgent, dead: bytes | None
) -> None:
    agent.fill(MANY, dead, 0 if dead is None else 1)
    client = agent.writer()
    if dead is not None:  # rows that expired are counted until they are removed
        assert agent.reply(client, b"RANDOMKEY")[0] is None
    agent.write(b"SET", TAGGED + b"last", b"v")
    reply, turns = agent.reply(client, b"RANDOMKEY")
    assert reply == TAGGED + b"last"
    assert turns[0] == FIRST_ROWS
    assert max(turns[1:]) == STEP_ROWS
    assert client.ask(b"PING") == [b"PONG"]


def test_a_random_key_is_one_of_a_partition_that_is_still_here(agent: LookingAgent) -> None:
    agent.fill(MANY, b"expired", 1)
    client = agent.writer()
    assert client.ask(b"RANDOMKEY") == []
    agent.give(OTHER, [PARTITION])
    agent.endpoint.settle()
    assert client.told() == [None]


def test_a_random_key_is_told_at_once_where_rows_are_live(agent: LookingAgent) -> None:
    agent.fill(10)
    reply, turns = agent.reply(agent.writer(), b"RANDOMKEY")
    assert reply.startswith(TAGGED)
    assert len(turns) == 1


# --- the keys of a slot


COUNT = (b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % key_slot(TAGGED))


def test_the_keys_of_a_slot_are_counted_in_steps_while_others_are_served(
    agent: LookingAgent,
) -> None:
    agent.fill(MANY)
    others = [key_in(PARTITION, b"other%d-" % number) for number in range(20)]
    for key in others:
        agent.write(b"SET", key, b"v")
    client, other = agent.writer(), agent.writer()
    assert client.send(COUNT, (b"PING",)) == []
    assert other.ask(b"GET", others[0]) == [b"v"]
    for _ in range(10):
        agent.endpoint.settle()
    assert client.told() == [MANY, b"PONG"]

    reply, turns = agent.reply(client, *COUNT)
    assert reply == MANY
    assert turns[0] == FIRST_ROWS
    assert max(turns[1:]) == STEP_ROWS


def test_the_keys_of_a_small_slot_are_counted_at_once(agent: LookingAgent) -> None:
    agent.fill(5)
    assert agent.reply(agent.writer(), *COUNT) == (5, [5])


def test_keys_that_have_expired_are_counted_until_they_are_removed(agent: LookingAgent) -> None:
    agent.fill(5, b"expired", 1)
    agent.role().copy.space.put(TAGGED + b"deleted", Row(1, 1, 0, None))
    assert agent.reply(agent.writer(), *COUNT)[0] == 5


def test_no_keys_are_counted_of_a_slot_that_goes_away_meanwhile(agent: LookingAgent) -> None:
    agent.fill(MANY)
    client = agent.writer()
    assert client.ask(*COUNT) == []
    agent.give(OTHER, [PARTITION])
    agent.endpoint.settle()
    assert client.told() == [0]
    assert agent.reply(client, *COUNT)[0] == 0


@pytest.mark.parametrize("words", [COUNT, (b"RANDOMKEY",)])
def test_steps_end_with_the_lease(agent: LookingAgent, words: tuple[bytes, ...]) -> None:
    agent.fill(MANY, b"expired", 1)
    client = agent.writer()
    assert client.ask(*words) == []
    agent.role().serving_until = 0
    agent.endpoint.settle()

    (said,) = client.told()
    assert str(said).startswith("CLUSTERDOWN")


@pytest.mark.parametrize("words", [COUNT, (b"RANDOMKEY",)])
def test_a_transaction_does_not_wait_for_many_rows(
    agent: LookingAgent, words: tuple[bytes, ...]
) -> None:
    agent.write(b"SET", TAGGED, b"v")
    assert agent.execute(agent.writer(), words) in ([1], [TAGGED])
    agent.fill(MANY, b"expired", 1)
    agent.write(b"DEL", TAGGED)
    (said,) = agent.execute(agent.writer(), words)
    assert "too many rows" in str(said)


def test_the_steps_of_a_client_that_left_are_given_up(agent: LookingAgent) -> None:
    agent.fill(MANY)
    client = agent.writer()
    assert client.ask(*COUNT) == []
    client.leave()
    assert not agent.endpoint._key_lists


# --- patterns


LONG = 400
PATTERN = b"*" + b"a" * 1_000 + b"*"


@pytest.fixture
def long_keys(agent: LookingAgent) -> list[bytes]:
    """200 keys of 400 bytes; of two of these the pattern is a part, so these are longer."""
    space = agent.role().copy.space
    keys = [TAGGED + b"%06d" % number + b"a" * LONG for number in range(200)]
    for number in (3, 150):
        keys[number] += PATTERN.strip(b"*")
    for key in keys:
        space.put(key, Row(1, 1, 0, b"v"))
    return keys


def test_a_page_of_a_scan_with_a_long_pattern_looks_at_few_long_keys(
    agent: LookingAgent, long_keys: list[bytes]
) -> None:
    client, looked_at, found = agent.writer(), [], []
    for keys in _scanned(agent, client, b"COUNT", b"10000", b"MATCH", PATTERN):
        looked_at.append(sum(agent.looks))
        found += keys

    assert found == [long_keys[3], long_keys[150]]
    assert sum(looked_at) == len(long_keys)
    assert max(looked_at) * LONG * len(PATTERN) <= 1.1 * MATCH_STEPS_MAX


def test_a_scan_for_a_prefix_has_pages_as_long_as_without(
    agent: LookingAgent, long_keys: list[bytes]
) -> None:
    pages = [*_scanned(agent, agent.writer(), b"COUNT", b"10000", b"MATCH", TAGGED + b"*")]

    assert pages == [sorted(long_keys)]


def test_keys_with_a_long_pattern_looks_at_few_long_keys_a_step(
    agent: LookingAgent, long_keys: list[bytes]
) -> None:
    reply, turns = agent.reply(agent.writer(), b"KEYS", PATTERN)

    assert reply == [long_keys[3], long_keys[150]]
    assert sum(turns) == len(long_keys)
    assert max(turns) * LONG * len(PATTERN) <= 1.1 * STEP_MATCH_STEPS


def test_a_page_of_members_with_a_long_pattern_has_few_long_members(agent: LookingAgent) -> None:
    client, members = agent.writer(), [b"%06d" % number + b"a" * LONG for number in range(200)]
    client.ask(b"SADD", b"set", *members)
    agent.turn()
    client.told()
    pages, cursor, found = 0, b"", list[bytes]()
    while cursor != b"0":
        ((cursor, page),) = client.ask(b"SSCAN", b"set", cursor, b"MATCH", PATTERN[:300] + b"*")
        found += page
        pages += 1

    assert sorted(found) == members
    least = sum(map(len, members)) * 300 / MATCH_STEPS_MAX
    assert least <= pages <= least + 2


# --- long values


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LookingAgent]:
    """An agent whose zone is on disk, with ten long values of 1 MiB and ten short ones."""
    storage = RocksStorage(tmp_path)
    monkeypatch.setattr(lone_agent, "MemoryStorage", lambda memory_bytes: storage)
    agent = LookingAgent(monkeypatch)
    for number in range(10):
        agent.role().copy.space.put(TAGGED + b"l%d" % number, Row(1, 1, 0, bytes(1 << 20)))
        agent.role().copy.space.put(TAGGED + b"s%d" % number, Row(1, 1, 0, bytes(1000)))
    storage.commit()
    yield agent
    storage.close()


@pytest.fixture
def reads(stored: LookingAgent, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the long values are that are read from here on."""
    storage = stored.role().copy.storage
    assert isinstance(storage, RocksStorage)
    found, read = list[int](), storage.long_values.read

    def noted(reference: bytes) -> bytes:
        value = read(reference)
        found.append(len(value))
        return value

    monkeypatch.setattr(storage.long_values, "read", noted)
    return found


@pytest.mark.parametrize("is_written_to", [False, True])
def test_no_long_value_is_read_for_its_key(
    stored: LookingAgent, reads: list[int], is_written_to: bool
) -> None:
    client = stored.writer()
    if is_written_to:  # in the same turn
        client.ask(b"SET", TAGGED + b"new", b"v")
    keys = next(_scanned(stored, stored.writer(), b"COUNT", b"1000"))
    assert len(keys) == 20 + is_written_to
    assert stored.reply(stored.writer(), *COUNT)[0] == 20 + is_written_to
    assert stored.reply(stored.writer(), b"RANDOMKEY")[0] in keys
    asked = stored.writer()
    assert len(stored.reply(asked, b"KEYS", b"*")[0]) == 20 + is_written_to
    assert reads == []


def test_a_page_that_needs_types_reads_a_bounded_number_of_bytes(
    stored: LookingAgent, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_commands, "BYTES_MAX", 3 << 20)
    found = []
    for keys in _scanned(stored, stored.writer(), b"COUNT", b"1000", b"TYPE", b"string"):
        assert sum(reads) <= 3 << 20
        reads.clear()
        found += keys
    names = [TAGGED + b"%c%d" % (kind, number) for kind in b"ls" for number in range(10)]
    assert found == names
