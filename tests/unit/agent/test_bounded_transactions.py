"""One EXEC takes neither the agent's time nor its memory, whatever its commands are."""

from typing import Any

import pytest

from quorate_agent.resp import transaction
from quorate_agent.resp.scan import ScanChunk
from quorate_agent.resp.view import View
from quorate_lone_agent.agent import Agent, key_in

KEY = key_in(0)
KEYS = [[], [KEY], [KEY, key_in(3)]]
WHERE = pytest.mark.parametrize("keys", KEYS, ids=["no-keys", "one-partition", "over-partitions"])


@pytest.fixture
def agent() -> Agent:
    return Agent()


def _values(agent: Agent, keys: list[bytes]) -> list[Any]:
    return [agent.writer().ask(b"GET", key)[0] for key in keys]


def _slow_scans(agent: Agent, monkeypatch: pytest.MonkeyPatch, s: float) -> list[bytes | None]:
    """Each scan takes so long; those that were made."""
    scan, made = agent.endpoint.overview.scan, list[bytes | None]()

    def slow(partition: int, after: bytes | None, *limits: Any, **kinds: Any) -> ScanChunk:
        agent.clock.used_ahead_s += s
        made.append(after)
        return scan(partition, after, *limits, **kinds)

    monkeypatch.setattr(agent.endpoint.overview, "scan", slow)
    return made


SCAN = (b"SCAN", b"0")


@WHERE
def test_commands_without_keys_take_little_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, keys: list[bytes]
) -> None:
    made = _slow_scans(agent, monkeypatch, transaction.UNCHANGING_S / 16)  # four partitions each
    puts = [(b"SET", key, b"new") for key in keys]
    client = agent.writer()
    done = agent.execute(client, *puts, SCAN, SCAN, SCAN)
    assert [each[0] for each in done[len(keys) :]] == [b"0"] * 3
    assert len(made) == 12
    made.clear()
    agent.write(b"FLUSHALL")

    reply = agent.execute(client, *puts, *[SCAN] * 50)

    assert len(made) <= 20
    if len(keys) < 2:
        assert "take more than 200 ms" in str(reply)
        assert _values(agent, keys) == [None for _ in keys]
    else:
        assert reply[:2] == [b"OK", b"OK"]
        assert "not executed" in str(reply[-1])
        assert _values(agent, keys) == [b"new", b"new"]
    assert client.ask(b"PING") == [b"PONG"]


@pytest.mark.parametrize("keys", KEYS[1:], ids=["one-partition", "over-partitions"])
@pytest.mark.parametrize("read", [(b"HLEN",), (b"HSET", b"f", b"v"), (b"HDEL", b"g")])
def test_commands_that_change_nothing_take_little_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, keys: list[bytes], read: tuple[bytes, ...]
) -> None:
    reads = []
    for key in keys:
        agent.write(b"HSET", key, b"f", b"v")
        reads.append((read[0], key, *read[1:]))
    get = View.get

    def slow(view: View, key: bytes) -> Any:
        agent.clock.used_ahead_s += transaction.UNCHANGING_S / 4
        return get(view, key)

    client = agent.writer()
    puts = [(b"SET", b"{%b}s" % key, b"new") for key in keys]
    with monkeypatch.context() as patched:
        patched.setattr(View, "get", slow)
        assert len(agent.execute(client, *puts, *reads * 3)) == 4 * len(keys)
        refused = agent.execute(client, *[(*put[:2], b"newer") for put in puts], *reads * 7)

    assert "take more than 200 ms" in str(refused)
    assert _values(agent, [put[1] for put in puts]) == [b"new" for _ in puts]


def test_what_changes_something_has_its_time(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    get = View.get

    def slow(view: View, key: bytes) -> Any:
        agent.clock.used_ahead_s += transaction.UNCHANGING_S
        return get(view, key)

    monkeypatch.setattr(View, "get", slow)
    done = agent.execute(
        agent.writer(), *[(b"HSET", b"{k}%d" % n, b"f", b"v") for n in range(9)], (b"GET", b"{k}")
    )
    assert done == [1] * 9 + [None]


@WHERE
def test_the_replies_of_commands_without_keys_count(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, keys: list[bytes]
) -> None:
    monkeypatch.setattr(transaction, "BYTES_MAX", 100_000)
    puts = [(b"SET", key, b"new") for key in keys]
    client = agent.writer()
    assert len(agent.execute(client, *puts, (b"COMMAND",))[-1]) > 100
    agent.write(b"FLUSHALL")

    reply = agent.execute(client, *puts, *[(b"COMMAND",)] * 20)

    if len(keys) < 2:
        assert "transaction of more than" in str(reply)
        assert _values(agent, keys) == [None for _ in keys]
    else:
        assert reply[:2] == [b"OK", b"OK"]
        assert len(reply[2]) > 100
        assert "not executed" in str(reply[-1])
        assert _values(agent, keys) == [b"new", b"new"]


@WHERE
def test_a_command_without_keys_that_fails_ends_no_agent(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, keys: list[bytes]
) -> None:
    def fail() -> int:
        raise RuntimeError("a defect")

    monkeypatch.setattr(agent.endpoint.overview, "key_count", fail)
    puts = [(b"SET", key, b"new") for key in keys]
    client = agent.writer()

    reply = agent.execute(client, *puts, (b"DBSIZE",))

    failed = reply[-1] if len(keys) > 1 else reply
    assert "internal error" in str(failed)
    assert client.ask(b"PING") == [b"PONG"]
