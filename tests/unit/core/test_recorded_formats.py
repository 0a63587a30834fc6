"""Builds that mix understand each other: what one of before sends and stores, and what it is sent.

`recorded_formats/` holds frames and definitions of builds of before (quorate_versions/record.py).
The rules that are checked here: docs/protocol.md, section 3, "Versions that mix".
"""

import json
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from quorate.facts import partition_row, zone
from quorate.protocol.messages.formats import SINCE, SPOKEN
from quorate.protocol.messages.handshake import Challenge, Proof
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate.wire.frames import decode_message, decode_opening
from quorate_versions.record import MESSAGES, OWNERSHIP, RECORDS, record
from quorate_versions.recorded import Recorded, recorded_builds
from quorate_versions.samples import same, sample

BUILDS = recorded_builds()
BY_NAME = {kind.__name__: kind for kind in (*MESSAGES, *RECORDS, *OWNERSHIP)}
of_each_build = pytest.mark.parametrize("build", BUILDS, ids=repr)


def now_known_by(build: Recorded) -> list[type]:
    """The messages of today that this build may be sent."""
    return [kind for kind in MESSAGES if SINCE.get(kind, 0) <= build.format]


def read_message(data: bytes, kind: type) -> Any:
    return (decode_opening if kind in (Challenge, Proof) else decode_message)(data)


@of_each_build
def test_every_message_of_a_build_of_before_is_read(build: Recorded) -> None:
    then = build.message_decoder()
    for name, frames in build.messages.items():
        for frame in frames:
            now = read_message(frame, BY_NAME[name])
            assert type(now).__name__ == name
            assert same(then.decode(frame), now), name


@of_each_build
def test_every_message_that_a_build_of_before_is_sent_is_read_by_it(build: Recorded) -> None:
    then = build.message_decoder()
    for kind in now_known_by(build):
        for full in (True, False):
            now = sample(kind, full=full)
            read = then.decode(msgspec.msgpack.encode(now))
            assert type(read).__name__ == kind.__name__
            assert same(read, now), kind.__name__


@of_each_build
def test_what_a_build_of_before_stores_is_read_and_the_other_way_about(build: Recorded) -> None:
    for name, stored in build.records.items():
        for data in stored:
            now = msgspec.msgpack.decode(data, type=BY_NAME[name])
            assert same(build.decode(name, data), now), name
            assert same(build.decode(name, msgspec.msgpack.encode(now)), now), name
    for name, told in build.ownership.items():
        for text in told:
            value = msgspec.json.decode(text, type=BY_NAME[name])
            assert same(build.decode(name, text), value), name
            assert same(build.decode(name, msgspec.json.encode(value).decode()), value), name


@of_each_build
def test_structs_only_grow_at_their_end_and_by_fields_with_defaults(build: Recorded) -> None:
    today = json.loads(json.dumps(record("now")["structs"]))
    for name, then in build.definitions.items():
        now = today[name]
        assert (now["tag"], now["array"]) == (then["tag"], then["array"]), name
        kept = now["fields"][: len(then["fields"])]
        assert [words[:1] for words in kept] == [words[:1] for words in then["fields"]], name
        assert [words[2:] for words in kept] == [words[2:] for words in then["fields"]], name
        for words in now["fields"][len(then["fields"]) :]:
            assert len(words) == 3, f"{name}.{words[0]} is new and has no default"


@of_each_build
def test_a_value_that_is_new_to_an_enum_is_a_new_format(build: Recorded) -> None:
    """A build of before takes a message with a value that it does not know for garbage."""
    today = record("now")["enums"]
    for name, values in build.enums.items():
        assert set(values) <= set(today[name]), f"{name}: stored values must still be read"
        if build.format == SPOKEN.highest:
            assert set(today[name]) == set(values), f"{name}: raise FORMAT_VERSION"


@of_each_build
def test_a_message_that_a_build_of_before_lacks_is_in_the_table(build: Recorded) -> None:
    for kind in MESSAGES:
        if kind.__name__ not in build.messages:
            assert build.format < SINCE.get(kind, 0) <= SPOKEN.highest, kind.__name__


def test_builds_of_every_format_that_is_spoken_are_recorded() -> None:
    assert {build.format for build in BUILDS} >= {*range(SPOKEN.lowest, SPOKEN.highest)} | {2}
    assert set(SINCE) <= set(MESSAGES)


def test_samples_fill_every_field_and_differ() -> None:
    report = sample(AgentReport, full=True)

    assert len(report.troubles) == 2
    assert report.troubles[0] != report.troubles[1]
    assert all(getattr(report, name) for name in AgentReport.__struct_fields__)
    assert sample(AgentReport, full=False) == AgentReport(1)
    assert isinstance(sample(Trouble, full=True).kind, TroubleKind)
    assert issubclass(partition_row.MigrationKind, StrEnum)
    assert issubclass(zone.Planner, StrEnum)


def test_the_comparison_finds_what_differs() -> None:
    """Of the fields that the earlier build has, and of those alone."""

    class Then(msgspec.Struct):
        a: int
        b: tuple[str, ...] = ()

    class Now(msgspec.Struct):
        a: int
        b: tuple[str, ...] = ()
        c: int = 0

    assert same(Then(1, ("x",)), Now(1, ("x",), 3))
    assert not same(Then(1), Now(2))
    assert not same(Then(1, ("x",)), Now(1, ("x", "y")))
    assert not same({"k": Then(1)}, {"k": Now(2)})
