"""Reading copies as columns, also from agents of before, and what is no answer."""

from collections.abc import Callable
from types import EllipsisType

import msgspec
import pytest

from quorate.protocol.messages.formats import Formats
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskColumns, AskRows, CopyColumns
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.read_columns import EVERY_KEY, KeyRange, read_columns
from quorate_spark.reading.read_copies import StoredRow, read_copies
from quorate_spark.settings import Settings
from quorate_spark_fixtures.scripted_agent import Answer, columns_told
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

FAST = Settings(1.0, 0.3, 0.3, 0.01, 64)
BEFORE = Formats(2, 6)
of_both = pytest.mark.parametrize("formats", [None, BEFORE], ids=["now", "before"])


def filled() -> ScriptedZone:
    zone = ScriptedZone(replicas=1)
    for index in range(30):
        zone.write(b"key-%02d" % index, b"v" * index)
    zone.write(b"key-07", None)
    return zone


def read_all(
    zone: ScriptedZone, ranges: tuple[KeyRange, ...] = EVERY_KEY, between: Callable[[], None] = int
) -> list[StoredRow]:
    copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
    found = []
    for chunk in read_columns(copy, "z", zone.cluster, FAST, ranges):
        assert len(chunk)
        found += chunk.rows()
        between()
    return found


@of_both
def test_all_rows_come_in_key_order_over_many_chunks(formats: Formats | None) -> None:
    with listening(filled()) as zone:
        zone.agents[0].formats = formats or zone.agents[0].formats
        found = read_all(zone)

        assert found == [(key, *row) for key, row in sorted(zone.copy(0).rows.items())]
        asked = [type(each) for each in zone.agents[0].asked]
        assert asked.count(AskRows if formats else AskColumns) > 5
        assert asked.count(AskColumns if formats else AskRows) == 0


@of_both
def test_only_the_ranges_that_are_asked_for_are_read(formats: Formats | None) -> None:
    with listening(filled()) as zone:
        zone.agents[0].formats = formats or zone.agents[0].formats
        ranges = (KeyRange(b"key-03", b"key-05"), KeyRange(b"key-07", b"key-07\0"))
        found = read_all(zone, (*ranges, KeyRange(b"key-29")))

        assert [row[0] for row in found] == [b"key-03", b"key-04", b"key-07", b"key-29"]
        assert found[2][4] is None
        questions = [each for each in zone.agents[0].asked if isinstance(each, AskColumns)]
        assert [KeyRange(each.first, each.before) for each in questions] == (
            [] if formats else [*ranges, KeyRange(b"key-29")]
        )


def test_an_agent_of_before_is_asked_for_no_rows_behind_a_range() -> None:
    with listening(filled()) as zone:
        zone.agents[0].formats = BEFORE
        read_all(zone, (KeyRange(b"key-03", b"key-05"),))

        asked = [each for each in zone.agents[0].asked if isinstance(each, AskRows)]
        assert max(each.after or b"" for each in asked) < b"key-09"


@of_both
def test_values_that_are_not_asked_for_are_absent(formats: Formats | None) -> None:
    with listening(filled()) as zone:
        zone.agents[0].formats = formats or zone.agents[0].formats
        copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
        chunks = list(read_columns(copy, "z", zone.cluster, FAST, values=False))

        assert [chunk.values for chunk in chunks] == [None] * len(chunks)
        assert sum(int(chunk.tombstones.sum()) for chunk in chunks) == 1
        asked = [each for each in zone.agents[0].asked if isinstance(each, AskColumns)]
        assert not any(each.values for each in asked)


def answered(found: list[StoredRow], /, **changed: object) -> Callable[[AskColumns], Answer]:
    def answer(ask: AskColumns) -> CopyColumns:
        return msgspec.structs.replace(columns_told(ask, found, 31, None), **changed)

    return answer


ROW: StoredRow = (b"secret-b", 1, 3, 0, b"xy")
LOWER: StoredRow = (b"secret-a", 1, 3, 0, b"xy")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda m: None, "closed the connection during AskColumns"),
        (answered([], problem="no copy"), "cannot read it: no copy"),
        (answered([], partition=1), "asked for z/0 and answered z/1"),
        (answered([], lwm=7), "went back from LWM 31 to 7"),
        (answered([ROW, ROW]), "rows must come in key order"),
        (answered([ROW, LOWER]), "rows must come in key order"),
        (answered([ROW], next=b"secret-b"), "it must rise"),
        (answered([], next=b""), "it must rise"),
        (answered([ROW], rows=2), "do not fit together: 2 rows with 1 heads"),
        (answered([ROW], heads=b"12"), "do not fit together"),
        (answered([ROW], key_sizes=b"\7\0\0\0"), "sizes that add up to 7 for 8 bytes"),
        (answered([ROW], value_sizes=b""), "do not fit together: 1 rows with 0 sizes"),
        (answered([ROW], value_sizes=b"\xff\xff\xff\xff"), "that add up to 4294967295 for 2"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(
    answer: Callable[[AskColumns], Answer], reason: str
) -> None:
    def on_ask(message: Message) -> Answer | EllipsisType:
        return answer(message) if isinstance(message, AskColumns) else ...

    with listening(filled()) as zone:
        zone.agents[0].on_ask = on_ask

        with pytest.raises(Unreadable, match=reason) as told:
            read_all(zone)

    assert "secret" not in str(told.value), "keys may have to be hashed"


def test_a_row_that_was_not_asked_for_is_refused() -> None:
    with listening(filled()) as zone:
        zone.agents[0].on_ask = lambda message: (
            columns_told(message, [ROW], 31, None) if isinstance(message, AskColumns) else ...
        )

        for beside in (KeyRange(b"secret-c"), KeyRange(b"", b"secret-b")):
            with pytest.raises(Unreadable, match="was not asked for"):
                read_all(zone, (beside,))


@of_both
def test_a_copy_that_changes_its_owner_while_it_is_read_is_not_a_reading(
    formats: Formats | None,
) -> None:
    def change() -> None:
        zone.copy(0).version += 1

    with listening(filled()) as zone:
        zone.agents[0].formats = formats or zone.agents[0].formats

        with pytest.raises(Unreadable, match="changed its owner or term while it was read"):
            read_all(zone, between=change)
