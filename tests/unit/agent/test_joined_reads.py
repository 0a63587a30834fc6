"""Reads, of a pipeline or alone, that are answered in one step, and those that are executed one by
one."""

from typing import Any

import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.copies.role_state import FrozenFor
from quorate.protocol.storage import Row
from quorate_agent.commands import endpoint, execution
from quorate_agent.resp.view import View, live_values
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, ZONE, Agent

A, B, C = b"{t}a", b"{t}b", b"{t}c"
HOME = key_partition(A, ZONE.partitions)
KEYS = tuple(b"%d" % number for number in range(20))


@pytest.fixture
def client(agent: Agent) -> KeptClient:
    client = agent.writer()
    for key in (A, B, *KEYS):
        client.ask(b"SET", key, b"value of " + key)
        agent.turn()
    client.told()
    return client


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the commands of each read were answered in one step."""
    seen: list[bool] = []
    join, one = execution.join_reads, endpoint.read_one

    def watched(view: View, commands: list[list[bytes]], *given: Any) -> bytes | None:
        before = len(commands)
        said = join(view, commands, *given)
        assert len(commands) == (before if said is None else 0)
        seen.append(said is not None)
        return said

    def watched_one(*given: Any) -> bytes | None:
        said = one(*given)
        seen.append(said is not None)
        return said

    monkeypatch.setattr(execution, "join_reads", watched)
    monkeypatch.setattr(endpoint, "read_one", watched_one)
    return seen


@pytest.mark.parametrize("keys", [(A,), (b"0",), (A, B, A), (b"0", b"1", b"12"), (A, b"0"), KEYS])
def test_reads_of_one_partition_or_several(
    client: KeptClient, joined: list[bool], keys: tuple[bytes, ...]
) -> None:
    said = client.send(*[(b"GET", key) for key in keys])

    assert said == [b"value of " + key for key in keys]
    assert joined == [True]


def test_every_kind_of_value(agent: Agent, client: KeptClient, joined: list[bool]) -> None:
    for words in (
        (b"SET", b"{t}1", b"\xffmarked"),
        (b"SET", b"{t}2", b"long" * 1000),
        (b"HSET", b"{t}3", b"f", b"v"),
        (b"SET", b"{t}4", b"\xff\xfftwice"),
        (b"SET", b"{t}5", b"stays", b"PX", b"100000"),
        (b"SET", b"{t}6", b"deleted"),
        (b"DEL", b"{t}6"),
        (b"SET", b"{t}7", b""),
    ):
        agent.write(*words)
    values = [
        b"\xffmarked",
        b"long" * 1000,
        "WRONGTYPE",
        b"\xff\xfftwice",
        b"stays",
        None,
        b"",
        None,
    ]

    said = client.send(*[(b"GET", b"{t}%d" % number) for number in range(1, 9)])

    assert [*map(_first_word, said)] == values
    for number, value in enumerate(values, 1):  # beside a short one alone
        said = client.send((b"GET", A), (b"GET", b"{t}%d" % number))
        assert [*map(_first_word, said)] == [b"value of " + A, value]
        assert [*map(_first_word, client.send((b"GET", b"{t}%d" % number)))] == [value]
    # An error is counted, so what it is among is answered one by one.
    pairs = [joined_one for value in values for joined_one in (value != "WRONGTYPE", True)]
    assert joined[-17:] == [False, *pairs]


def _first_word(said: object) -> object:
    return said if isinstance(said, bytes | None) else str(said).split(" ")[0]


def test_a_row_is_live_until_its_moment_has_passed() -> None:
    rows = [Row(1, 1, 0, b"a"), Row(1, 1, 9, b"b"), Row(1, 1, 10, b"c"), Row(1, 1, 0, None), None]

    assert live_values(rows, 10) == [b"a", None, b"c", None, None]


def test_nothing_is_said_as_the_protocol_of_the_client_does(agent: Agent) -> None:
    client = agent.writer()
    client.ask(b"HELLO", b"3")
    for count in (1, 2):
        client.connection.data_received(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n" * count)
        assert client.socket.take() == b"_\r\n" * count


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ([(b"GET", A), (b"get", B)], [b"value of " + A, b"value of " + B]),
        ([(b"GET", A), (b"STRLEN", B)], [b"value of " + A, 13]),
        ([(b"GET", A), (b"GET", B, b"more")], [b"value of " + A, "ERR"]),
        ([(b"GET", A), (b"GET", b"\0quorate\0{t}")], [b"value of " + A, "ERR"]),
        ([(b"GET",), (b"GET",)], ["ERR", "ERR"]),
        ([(b"GET",)], ["ERR"]),
        ([(b"GET", A, b"more")], ["ERR"]),
        ([(b"GET", b"\0quorate\0{t}")], ["ERR"]),
        ([(b"STRLEN", A)], [13]),
    ],
)
def test_others_are_executed_one_by_one(
    client: KeptClient, joined: list[bool], commands: list[tuple[bytes, ...]], said: list[object]
) -> None:
    found = [each if isinstance(each, bytes | int) else str(each)[:3] for each in
             client.send(*commands)]  # fmt: skip

    assert found == said
    assert joined == [False]


def test_what_is_not_acknowledged_yet_is_waited_for(
    agent: Agent, client: KeptClient, joined: list[bool]
) -> None:
    client.ask(b"SET", C, b"1")
    several, one = agent.writer(), agent.writer()
    joined.clear()

    assert several.send((b"GET", A), (b"GET", C)) == [b"value of " + A]
    assert one.send((b"GET", C)) == []
    agent.turn()

    assert several.told() == one.told() == [b"1"]
    assert joined == [False, False]


def test_what_another_agent_has_is_not_answered_here(
    agent: Agent, client: KeptClient, joined: list[bool]
) -> None:
    agent.give(OTHER, [HOME])
    agent.tick(3000)

    said = client.send((b"GET", A), (b"GET", B)) + agent.writer().send((b"GET", A))

    assert not {*map(str, said)} & {str(b"value of " + key) for key in (A, B)}
    assert joined == [False, False]


@pytest.mark.parametrize("keys", [(A,), (A, B)])
@pytest.mark.parametrize("what", ["frozen", "locks", "serving_until"])
def test_a_partition_that_may_not_answer(
    agent: Agent, client: KeptClient, joined: list[bool], what: str, keys: tuple[bytes, ...]
) -> None:
    role = agent.replicas.primaries[HOME]
    assert role is not None
    value: dict[str, Any] = {"frozen": FrozenFor("m-1", 0), "locks": {A: b"t"}, "serving_until": 0}
    setattr(role, what, value[what])

    assert client.send(*[(b"GET", key) for key in keys]) == []
    assert joined[0] is False


def test_their_place_is_behind_what_waits(agent: Agent, client: KeptClient) -> None:
    client.send((b"SET", C, b"1"))
    elsewhere = [key for key in KEYS if key_partition(key, ZONE.partitions) != HOME]

    assert client.send(*[(b"GET", key) for key in elsewhere]) == []
    assert client.send((b"GET", elsewhere[0])) == []
    agent.turn()

    assert client.told() == [b"OK", *[b"value of " + key for key in (*elsewhere, elsewhere[0])]]
