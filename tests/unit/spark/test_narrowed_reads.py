"""A read that needs a part of a zone asks agents for that part, and for no more."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from quorate.facts.keyspace import RESERVED, key_partition, key_slot
from quorate.protocol.messages.tools import AskColumns
from quorate.protocol.transactions.parts import INDEX_KEY
from quorate_spark.data_source import (
    CopyPartition,
    CopyReader,
    FilteredCopyReader,
    QuorateDataSource,
)
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.read_columns import KeyRange
from quorate_spark.sources import narrowing
from quorate_spark.sources.narrowing import after_prefix, intersection, only, slot_of
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening

PARTITIONS = 4
KEYS = [b"key-%02d" % number for number in range(40)]
TAGGED = [b"{user}-%d" % number for number in range(3)]
KEY = ("key",)

Question = tuple[str, int, KeyRange]


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=PARTITIONS)
    for key in (*KEYS, *TAGGED):
        zone.put(key, b"value of " + key)
    with listening(zone):
        yield zone


def options_of(zone: LoggedZone, **more: str) -> dict[str, str]:
    agents = ",".join(agent.address for agent in zone.agents)
    options = {"zone": "z", "agents": agents, "cluster": "c", "secret_file": zone.secret_file}
    return {**options, **more}


def read(reader: CopyReader) -> list[dict[str, Any]]:
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def keys(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted({row["key"] for row in rows})


def asked(zone: LoggedZone) -> list[Question]:
    return [
        (agent.name, each.partition, KeyRange(each.first, each.before))
        for agent in zone.agents
        for each in agent.asked
        if isinstance(each, AskColumns)
    ]


def filtered(zone: LoggedZone, *filters: Filter, **more: str) -> FilteredCopyReader:
    reader = FilteredCopyReader(options_of(zone, **more))
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies them again"
    return reader


def test_columns_that_are_not_read_do_not_travel(zone: LoggedZone) -> None:
    options = options_of(zone, columns="counter, key", problems="rows")

    found = read(CopyReader(options))

    assert QuorateDataSource(options).schema() == "`counter` long, `key` binary, `problem` string"
    assert [list(row) for row in found] == [["counter", "key", "problem"]] * len(found)
    assert keys([row for row in found if row["problem"] is None]) == sorted([*KEYS, *TAGGED])
    questions = [each for agent in zone.agents for each in agent.asked]
    assert not any(each.values for each in questions if isinstance(each, AskColumns))


def test_values_travel_when_they_are_read(zone: LoggedZone) -> None:
    found = read(CopyReader(options_of(zone, columns="value", partitions="0")))

    assert all(row["value"].startswith(b"value of ") for row in found)


def test_of_a_prefix_only_its_keys_are_asked_for(zone: LoggedZone) -> None:
    found = read(CopyReader(options_of(zone, prefix="key-1")))

    assert keys(found) == KEYS[10:20]
    assert {each[2] for each in asked(zone)} == {KeyRange(b"key-1", b"key-2")}
    assert {each[1] for each in asked(zone)} == set(range(PARTITIONS))


def test_of_a_prefix_with_a_hash_tag_only_its_partition_is_asked(zone: LoggedZone) -> None:
    found = read(CopyReader(options_of(zone, prefix="{user}-")))

    assert keys(found) == TAGGED
    assert {each[1] for each in asked(zone)} == {key_partition(TAGGED[0], PARTITIONS)}


def test_of_slots_only_their_partitions_are_asked(zone: LoggedZone) -> None:
    slot = key_slot(KEYS[7])

    found = read(CopyReader(options_of(zone, slots=f"{slot},{slot}-{slot}")))

    assert keys(found) == [key for key in KEYS if key_slot(key) == slot]
    assert {each[1] for each in asked(zone)} == {key_partition(KEYS[7], PARTITIONS)}
    half = keys(read(CopyReader(options_of(zone, slots="0-8191"))))
    assert half == [key for key in sorted([*KEYS, *TAGGED]) if key_slot(key) < 8192]


@pytest.mark.parametrize("told", [PARTITIONS, 0], ids=["now", "before"])
def test_of_keys_only_their_partitions_and_no_others_are_asked(zone: LoggedZone, told: int) -> None:
    """Agents of before do not say how many partitions there are: all of them are asked."""
    for agent in zone.agents:
        agent.partitions = told
    wanted = [KEYS[3], KEYS[5]]

    for one in (EqualTo(KEY, KEYS[3]), In(KEY, (KEYS[5], KEYS[3], KEYS[3]))):
        assert keys(read(filtered(zone, IsNotNull(KEY), one))) in ([KEYS[3]], wanted)

    assert {each[2] for each in asked(zone)} == {KeyRange(key, key + b"\0") for key in wanted}
    if told:
        places = {(key_partition(key, PARTITIONS), key) for key in wanted}
        assert {(each[1], each[2].first) for each in asked(zone)} == places


def test_of_a_range_only_its_keys_are_asked_for(zone: LoggedZone) -> None:
    lower, upper = GreaterThanOrEqual(KEY, KEYS[4]), LessThan(KEY, KEYS[9])

    assert keys(read(filtered(zone, lower, upper))) == KEYS[4:9]
    assert {each[2] for each in asked(zone)} == {KeyRange(KEYS[4], KEYS[9])}
    above, upto = GreaterThan(KEY, KEYS[4]), LessThanOrEqual(KEY, KEYS[9])
    assert keys(read(filtered(zone, above, upto, prefix="key-"))) == KEYS[5:10]
    nothing = filtered(zone, above, EqualTo(KEY, KEYS[4]), problems="rows")
    assert nothing.partitions() == []
    assert list(nothing.read(InputPartition(None))) == [], "Spark makes one up"


def test_only_the_copies_that_pass_are_asked(zone: LoggedZone) -> None:
    primaries = EqualTo(("replica_index",), 0)
    read(filtered(zone, primaries, In(("partition",), (1, 2)), partitions="2,3"))

    assert {each[:2] for each in asked(zone)} == {("agent-0", 2)}
    some = filtered(
        zone, In(("replica_index",), (0, 1)), EqualTo(("node",), "agent-1")
    ).partitions()
    assert {each.copy.node for each in some if isinstance(each, CopyPartition)} == {"agent-1"}
    assert len(filtered(zone, In(("node",), ("agent-1", "agent-2"))).partitions()) == 8


def test_filters_that_say_nothing_of_keys_and_copies_leave_all(zone: LoggedZone) -> None:
    others = [
        Not(EqualTo(KEY, KEYS[0])), EqualTo(("value",), KEYS[0]), In(KEY, (None, KEYS[0])),
        EqualTo(("a", "key"), KEYS[0]), LessThan(("counter",), 3), EqualTo(("node",), None),
    ]  # fmt: skip

    assert len(filtered(zone, *others).partitions()) == 3 * PARTITIONS
    assert keys(read(filtered(zone, *others))) == sorted([*KEYS, *TAGGED])


def test_of_very_many_keys_what_is_between_them_is_read(
    zone: LoggedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrowing, "RANGES_MAX", 3)
    there = [key for key in KEYS if key_partition(key, PARTITIONS) == 1]

    found = keys(read(filtered(zone, In(KEY, tuple(there)), EqualTo(("partition",), 1))))

    assert found == there
    assert {each[2] for each in asked(zone)} == {KeyRange(there[0], there[-1] + b"\0")}


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"columns": "key,size"}, "option columns is 'key,size': write some of key, value,"),
        ({"columns": "key,key"}, "each once"),
        ({"slots": "5-2"}, "option slots is '5-2': write slots of 0 to 16383, as in"),
        ({"slots": "16384"}, "option slots is '16384'"),
        ({"slots": "a"}, "option slots is 'a'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    zone: LoggedZone, option: dict[str, str], reason: str
) -> None:
    with pytest.raises(Unreadable, match=reason):
        CopyReader(options_of(zone, **option))


@pytest.mark.parametrize("name", ["columns", "prefix", "slots"])
def test_a_stream_refuses_what_narrows_a_read(zone: LoggedZone, name: str) -> None:
    with pytest.raises(Unreadable, match=f"option {name} is 'key': a stream has all updates"):
        QuorateDataSource(options_of(zone, **{name: "key"})).streamReader(StructType())


@pytest.mark.parametrize(
    ("prefix", "after"),
    [(b"", None), (b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"\0", b"\1")],
)
def test_what_comes_after_a_prefix(prefix: bytes, after: bytes | None) -> None:
    assert after_prefix(prefix) == after


def test_the_slot_of_a_range_is_known_by_its_tag() -> None:
    def of_prefix(prefix: bytes) -> int | None:
        return slot_of(KeyRange(prefix, after_prefix(prefix)))

    assert of_prefix(b"a{user}b") == of_prefix(b"{user}") == key_slot(b"{user}")
    assert of_prefix(b"{user") is of_prefix(b"{}a") is of_prefix(b"user}") is of_prefix(b"") is None
    assert slot_of(KeyRange(b"{user}", b"{usex}")) is None


def test_internal_keys_are_looked_for_in_every_partition(zone: LoggedZone) -> None:
    for key in (INDEX_KEY, RESERVED, RESERVED + b"{user}-"):
        assert slot_of(only(key)) is None
        assert slot_of(KeyRange(key, after_prefix(key))) is None
    assert slot_of(only(b"\0quorate")) is not None, "it is a client's"
    assert slot_of(only(b"\0quorate\1")) is not None, "it is a client's"

    filtered_reader = filtered(zone, EqualTo(KEY, INDEX_KEY))

    assert len(filtered_reader.partitions()) == 3 * PARTITIONS


def test_ranges_that_overlap_in_part() -> None:
    ranges = (KeyRange(b"a", b"c"), KeyRange(b"d", b"e"), KeyRange(b"x"))

    assert intersection(ranges, (KeyRange(b"b", b"d\0"), KeyRange(b"f"))) == (
        KeyRange(b"b", b"c"),
        KeyRange(b"d", b"d\0"),
        KeyRange(b"x"),
    )
    assert intersection(ranges, (KeyRange(),)) == ranges
    assert intersection(ranges, ()) == intersection((KeyRange(b"c", b"d"),), ranges) == ()
