"""Answers of an agent to tools about rows that are set aside, and about present ones."""

import pytest

from quorate.facts.keyspace import RESERVED
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.record import ASIDE_KEPT_MS, KeptRows
from quorate.protocol.messages.tools import (
    AskAside,
    AskValues,
    RowsAside,
    SetAside,
    Value,
    Values,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Row
from quorate_agent.process import values_told
from quorate_agent.process.tools import answer_tool
from quorate_agent.resp.values.value import pack_elements, pack_fields, pack_members, pack_string
from quorate_agent.storage.memory import MemoryStorage

LONG = b"x" * (values_told.BYTES_MAX + 1)
STORED = {
    b"hash": pack_fields({b"f": b"1", b"g": b"2"}),
    b"list": pack_elements([b"b", b"a"]),
    b"long": LONG,
    b"marked": pack_string(b"\xff\xfe"),
    b"not ours": b"\xff?",
    b"set": pack_members([b"m", b"n"]),
    b"text": b"hello",
}


@pytest.fixture
def zone() -> Replicas:
    """Partition 1 has a present row, and two sets of rows aside."""
    settings = ProtocolSettings()
    made = Replicas(
        ZoneRecord("u", "z", 4, 1),
        Holder("a", "s", 1),
        MemoryStorage(),
        Leases(settings, 1, 0),
        settings,
        Now(0, 0),
    )
    copy = made.copy_of(1)
    copy.present = True
    copy.space.put(b"text", Row(9, 3, 0, b"present"))
    aside = made.storage.space(1, 5)
    for number, (key, value) in enumerate(STORED.items(), 1):
        aside.put(key, Row(number, 2, 0, value))
    aside.put(b"gone", Row(8, 2, 0, None))
    aside.put(RESERVED + b"x", Row(8, 2, 0, b"internal"))
    made.storage.space(1, 6).put(b"text", Row(2, 2, 77, b"later"))
    copy.kept_rows = (KeptRows(5, 1000, 3, 2, 8, 7, 900), KeptRows(6, 2000, 4, 3, 2, 1, 9))
    other = made.copy_of(3)
    other.kept_rows = (KeptRows(1, 500, 2, 1, 1, 1, 1),)
    for each in (copy, other):
        made.note_aside(each)
    return made


def listed(zone: Replicas, after: int = -1) -> SetAside:
    answer = answer_tool(AskAside("z", after), "a", [zone], debug_commands=False, now=Now(0, 0))
    assert isinstance(answer, SetAside)
    return answer


def told(zone: Replicas, ask: AskValues) -> Values:
    answer = answer_tool(ask, "a", [zone], debug_commands=False, now=Now(0, 0))
    assert isinstance(answer, Values)
    return answer


def all_values(zone: Replicas, generation: int | None) -> dict[bytes, Value]:
    found: dict[bytes, Value] = {}
    after: bytes | None = None
    while True:
        answer = told(zone, AskValues("z", 1, generation, after))
        assert not answer.problem
        found |= {value.key: value for value in answer.values}
        after = answer.next
        if after is None:
            return found


def test_what_is_set_aside_is_listed_by_partition_and_age(zone: Replicas) -> None:
    answer = listed(zone)

    assert [(each.partition, each.generation) for each in answer.found] == [(1, 5), (1, 6), (3, 1)]
    assert answer.found[0] == RowsAside(1, 5, 1000, 1000 + ASIDE_KEPT_MS, 3, 2, 8, 7, 900)
    assert (answer.node, answer.next, answer.problem) == ("a", None, "")


def test_a_long_list_is_told_in_parts(zone: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_told, "TOLD_MAX", 1)

    first = listed(zone)
    assert first.next == 1
    assert {each.partition for each in first.found} == {1}
    assert [each.partition for each in listed(zone, first.next).found] == [3]


def test_values_of_each_kind_are_told_as_clients_see_them(zone: Replicas) -> None:
    found = all_values(zone, 5)

    assert {key: (value.kind, value.items) for key, value in found.items()} == {
        b"gone": ("none", ()),
        b"hash": ("hash", (b"f", b"1", b"g", b"2")),
        b"list": ("list", (b"b", b"a")),
        b"long": ("string", None),
        b"marked": ("string", (b"\xff\xfe",)),
        b"not ours": ("", None),
        b"set": ("set", (b"m", b"n")),
        b"text": ("string", (b"hello",)),
    }
    assert found[b"long"].bytes == len(LONG)
    assert (found[b"text"].counter, found[b"text"].term) == (7, 2)


def test_each_set_of_rows_and_the_present_ones_are_told_apart(zone: Replicas) -> None:
    assert {key: value.items for key, value in all_values(zone, 6).items()} == {
        b"text": (b"later",)
    }
    assert {key: value.items for key, value in all_values(zone, None).items()} == {
        b"text": (b"present",)
    }


def test_one_answer_is_short(zone: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_told, "ROWS_MAX", 2)

    assert len(told(zone, AskValues("z", 1, 5, b"gone")).values) == 2
    assert len(all_values(zone, 5)) == len(STORED) + 1


def test_one_key_is_told_whole(zone: Replicas) -> None:
    answer = told(zone, AskValues("z", 1, 5, key=b"long"))

    assert [value.items for value in answer.values] == [(LONG,)]
    assert answer.next is None
    assert told(zone, AskValues("z", 1, 5, key=b"absent")).values == ()


@pytest.mark.parametrize(
    ("zone_name", "partition", "generation", "problem"),
    [
        ("z", 1, 7, "partition 1: no rows 7 set aside on agent a"),
        ("z", 3, None, "partition 3: no copy on agent a"),
        ("z", 0, 5, "partition 0: no rows 5 set aside on agent a"),
        ("y", 1, 5, "zone y: not on agent a"),
    ],
)
def test_what_is_not_there_is_said(
    zone: Replicas, zone_name: str, partition: int, generation: int | None, problem: str
) -> None:
    answer = told(zone, AskValues(zone_name, partition, generation))

    assert answer.problem == problem
    assert answer.values == ()
