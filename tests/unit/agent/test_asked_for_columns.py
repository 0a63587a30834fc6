"""An agent's answers to a tool that asks for rows as columns."""

import pytest

from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.totals import key_bucket
from quorate.protocol.messages.tools import (
    AskBuckets,
    AskColumns,
    AskCopies,
    AskRows,
    Buckets,
    Copies,
    CopyColumns,
    CopyRows,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import ROW_HEAD, Row
from quorate_agent.process import tools
from quorate_agent.process.paced.pace import Portion
from quorate_agent.storage.memory import MemoryStorage


@pytest.fixture
def zone() -> Replicas:
    """One copy in memory: a tombstone and rows whose keys and values have other lengths."""
    settings = ProtocolSettings()
    made = Replicas(
        ZoneRecord("u", "z", 2, 1, StorageKind.IN_MEMORY),
        Holder("a", "s", 1),
        MemoryStorage(),
        Leases(settings, 1, 0),
        settings,
        Now(0, 0),
    )
    copy = made.copy_of(0)
    copy.present = True
    for key, row in {
        b"a": Row(1, 3, 0, b"one"),
        b"bb": Row(2, 3, 99, None),
        b"c": Row(300, 4, 0, b""),
        b"dddd": Row(4, 4, 0, bytes(70_000)),
    }.items():
        copy.space.put(key, row)
    return made


def ask(zone: Replicas, question: AskColumns) -> CopyColumns:
    answer = tools.answer_tool(question, "a", [zone], debug_commands=False, now=Now(0, 0))
    assert isinstance(answer, CopyColumns)
    return answer


def test_each_column_is_told_in_one_piece(zone: Replicas) -> None:
    told = ask(zone, AskColumns("z", 0, b"", 1 << 20))

    assert (told.problem, told.rows, told.next) == ("", 4, None)
    assert (told.keys, told.key_sizes) == (
        b"abbcdddd",
        bytes([1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]),
    )
    assert list(ROW_HEAD.iter_unpack(told.heads)) == [
        (1, 3, 0, 0), (2, 3, 99, 1), (300, 4, 0, 0), (4, 4, 0, 0),
    ]  # fmt: skip
    assert told.values == b"one" + bytes(70_000)
    assert told.value_sizes == b"".join(n.to_bytes(4, "little") for n in (3, 0, 0, 70_000))


def test_values_that_are_not_asked_for_are_not_told(zone: Replicas) -> None:
    told = ask(zone, AskColumns("z", 0, b"bb", 100, b"d", values=False))

    assert (told.keys, told.rows, told.next) == (b"bbc", 2, None)
    assert (told.values, told.value_sizes) == (b"", b"")


def test_an_answer_that_is_full_says_where_to_go_on(zone: Replicas) -> None:
    told = ask(zone, AskColumns("z", 0, b"", 5))

    assert (told.keys, told.next) == (b"abb", b"bb\0")
    assert ask(zone, AskColumns("z", 0, b"bb\0", 1)).keys == b"c"


def test_a_paced_answer_reads_no_more_than_its_portion(zone: Replicas) -> None:
    portion = Portion(5)
    for question, keys in (
        (AskColumns("z", 0, b"", 1 << 20), [b"a", b"bb"]),
        (AskRows("z", 0, None, 1 << 20), [b"a", b"bb"]),
        (AskRows("z", 0, None, 1 << 20, (key_bucket(b"a"),)), [b"a"]),
    ):
        told = tools.answer_tool(question, "a", [zone], False, Now(0, 0), portion)
        assert isinstance(told, CopyColumns | CopyRows)
        found = [row[0] for row in told.rows] if isinstance(told, CopyRows) else told.keys
        assert found == (keys if isinstance(told, CopyRows) else b"".join(keys))
        assert told.next is not None
    told = tools.answer_tool(AskBuckets("z", 0, 9, None), "a", [zone], False, Now(0, 0), portion)

    assert isinstance(told, Buckets)
    assert told.next == b"bb"
    assert portion.read == 3 * len(b"aonebb")  # of the answers that may leave rows out


@pytest.mark.parametrize("bytes_max", [0, -1])
def test_one_row_is_told_at_least(zone: Replicas, bytes_max: int) -> None:
    told = ask(zone, AskColumns("z", 0, b"", bytes_max))
    rows = tools.answer_tool(
        AskRows("z", 0, None, bytes_max), "a", [zone], debug_commands=False, now=Now(0, 0)
    )

    assert (told.problem, told.keys, told.next) == ("", b"a", b"a\0")
    assert isinstance(rows, CopyRows)
    assert ([row[0] for row in rows.rows], rows.next) == ([b"a"], b"a")


def test_a_copy_that_is_not_here_is_named(zone: Replicas) -> None:
    assert ask(zone, AskColumns("z", 1, b"", 1)).problem == "partition 1: no copy on agent a"
    assert "zone y: not on agent a" in ask(zone, AskColumns("y", 0, b"", 1)).problem


def test_who_asks_for_copies_hears_of_their_zone(zone: Replicas) -> None:
    answer = tools.answer_tool(AskCopies("z"), "a", [zone], debug_commands=False, now=Now(0, 0))

    assert isinstance(answer, Copies)
    assert (answer.partitions, len(answer.copies)) == (2, 1)
    assert answer.uid == zone.record.uid != ""
