"""Readings with a limit for each agent: what agents are asked for, and which of them can be."""

from collections.abc import Iterator
from dataclasses import replace
from types import EllipsisType, SimpleNamespace
from typing import Any

import pytest

from quorate.facts.read_limit import MIB
from quorate.protocol.messages.formats import Formats
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AnswerLater, AskColumns, AskPaced, CopyColumns, Paced
from quorate.wire.frames import encode_frame
from quorate_spark.exports.export_zone import _groups
from quorate_spark.reading.agent_link import TooOld, Unreadable
from quorate_spark.reading.read_columns import read_columns
from quorate_spark.reading.read_copies import read_answering, read_copies, read_key
from quorate_spark.reading.watch_digests import watch_digests
from quorate_spark.settings import SettingError, Settings
from quorate_spark.sources.options import source_of
from quorate_spark_fixtures.scripted_agent import Answer
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

FREE = Settings(1.0, 0.3, 0.3, 0.01, 64)
LIMITED = replace(FREE, max_mib_per_second_per_agent=8)
BEFORE = Formats(2, 7)
"""Of agents that pace nothing."""


@pytest.fixture
def zone() -> Iterator[ScriptedZone]:
    """One copy with thirty rows."""
    made = ScriptedZone(replicas=1)
    for index in range(30):
        made.write(b"key-%02d" % index, b"v" * index)
    with listening(made):
        yield made


def read(zone: ScriptedZone, settings: Settings) -> int:
    copy = read_copies("z", zone.copies.agents, zone.cluster, FREE).owned[0][0]
    return sum(len(rows) for rows in read_columns(copy, "z", zone.cluster, settings))


def test_a_link_asks_for_the_limit_before_it_reads(zone: ScriptedZone) -> None:
    assert read(zone, LIMITED) == 30
    copy = read_copies("z", zone.copies.agents, zone.cluster, LIMITED).owned[0][0]
    read_key(copy, b"key-07", "z", zone.cluster, LIMITED)

    asked = zone.agents[0].asked
    paced = [index for index, each in enumerate(asked) if isinstance(each, AskPaced)]
    assert [asked[index] for index in paced] == [AskPaced(8 << 20)] * 2
    assert paced[0] < min(i for i, each in enumerate(asked) if isinstance(each, AskColumns))


def test_a_reading_without_a_limit_asks_for_none(zone: ScriptedZone) -> None:
    assert read(zone, FREE) == 30
    assert not any(isinstance(each, AskPaced) for each in zone.agents[0].asked)


def test_an_agent_of_before_is_refused_because_it_would_not_hold_the_limit(
    zone: ScriptedZone,
) -> None:
    zone.agents[0].formats = BEFORE
    assert read(zone, FREE) == 30
    with pytest.raises(TooOld) as refused:
        read(zone, LIMITED)

    assert "speaks format version 7, in which no reading is paced" in str(refused.value)
    assert str(refused.value).endswith("upgrade the agent, or read without a limit")


def test_counters_and_digests_are_asked_of_an_agent_of_before(zone: ScriptedZone) -> None:
    """An agent that cannot hold the limit is not one that does not answer."""
    zone.agents[0].formats = BEFORE
    found = read_answering("z", zone.copies.agents, zone.cluster, LIMITED).owned
    told = watch_digests(found, "z", zone.cluster, LIMITED)

    assert not isinstance(told[0], str), "why there are no digests"
    assert not any(isinstance(each, AskPaced) for each in zone.agents[0].asked)


def test_an_agent_that_refuses_the_limit_is_not_read(zone: ScriptedZone) -> None:
    def refuse(message: Message) -> Answer | EllipsisType:
        return Paced(0, "out of order") if isinstance(message, AskPaced) else ...

    zone.agents[0].on_ask = refuse
    with pytest.raises(Unreadable, match="does not pace what is read: out of order"):
        read(zone, LIMITED)
    assert not any(isinstance(each, AskColumns) for each in zone.agents[0].asked)


def test_the_answer_comes_after_words_that_it_does(zone: ScriptedZone) -> None:
    agent = zone.agents[0]

    def late(message: Message) -> Answer | EllipsisType:
        if not isinstance(message, AskColumns):
            return ...
        told = agent._columns(message)
        assert isinstance(told, CopyColumns)
        return encode_frame(AnswerLater(3)) + encode_frame(AnswerLater(1)) + encode_frame(told)

    agent.on_ask = late
    assert read(zone, LIMITED) == 30


@pytest.mark.parametrize(
    ("limit", "refusal"),
    [
        (0, "max_mib_per_second_per_agent is 0: give a number above 0"),
        (-3, "max_mib_per_second_per_agent is -3: give a number above 0"),
        (
            10_001,
            "max_mib_per_second_per_agent is 10001: give a number up to 10000, or leave it out",
        ),
    ],
)
def test_a_limit_that_is_none_is_refused(limit: int, refusal: str) -> None:
    with pytest.raises(SettingError) as refused:
        Settings(max_mib_per_second_per_agent=limit)
    assert str(refused.value) == refusal


def test_the_data_source_takes_the_limit_as_an_option(zone: ScriptedZone) -> None:
    options = {
        "zone": "z",
        "agents": ",".join(zone.copies.agents),
        "cluster": "c",
        "secret_file": zone.cluster.secret_file,
    }
    name = "max_mib_per_second_per_agent"

    assert source_of(options).settings.bytes_per_s is None
    assert source_of({**options, name: "5"}).settings.bytes_per_s == 5 << 20
    with pytest.raises(Unreadable, match=f"option {name} is '1.5': write a whole number"):
        source_of({**options, name: "1.5"})
    with pytest.raises(SettingError, match=f"{name} is 0: give a number above 0"):
        source_of({**options, name: "0"})


def test_under_a_limit_an_export_reads_together_what_takes_five_seconds() -> None:
    """The log of a copy must reach back to when the first partition of a group was read."""
    owned: Any = {
        partition: (SimpleNamespace(state=SimpleNamespace(bytes=3 * MIB, rows=1)),)
        for partition in range(12)
    }

    def groups(limit: int | None) -> list[int]:
        bytes_per_s = Settings(max_mib_per_second_per_agent=limit).bytes_per_s
        return [len(each.partitions) for each in _groups(owned, bytes_per_s)]

    assert groups(None) == groups(10_000) == [12]
    assert groups(2) == [3, 3, 3, 3]
    assert groups(1) == [1] * 12
