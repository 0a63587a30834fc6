"""An export with a base has the rows that one without has, and asks agents for few of them."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate.facts.keyspace import RESERVED, key_partition
from quorate.facts.lineage import Entry, Lineage
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.tools import AskColumns, AskDigests, AskRows, AskUpdates, UpdatesTold
from quorate_spark.exports import base_export, cut, export_group, part_file
from quorate_spark.exports.base_export import Whole, from_base, reasons
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.manifest import MANIFEST, PartTold
from quorate_spark.exports.part_file import PartWriter, part_columns
from quorate_spark.exports.target import Target
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.row_columns import RowColumns
from quorate_spark_fixtures.based_exports import (
    IN_0,
    INTERNAL,
    KEYS,
    base_of,
    changed,
    clients_rows,
    export,
    filled_zone,
    partitions_asked,
    read_whole,
    rows_in,
)
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK, listening


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    with filled_zone() as zone:
        yield zone


def test_rows_come_from_the_base_and_the_log(zone: LoggedZone, tmp_path: Path) -> None:
    first = export(zone, tmp_path / "base")
    assert partitions_asked(zone, AskColumns, AskRows) == {0, 1, 2, 3}
    assert first.base == ""
    assert from_base(first) == (0, 0)
    for number, key in enumerate(KEYS[:30]):
        zone.put(key, None if number % 3 == 0 else b"anew-%d" % number, number % 2 * 1_888_888_888)
        zone.put(b"between-%d" % number, b"new")
    zone.put(KEYS[0], b"back again")

    second = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert rows_in(tmp_path / "second") == clients_rows(zone)
    assert partitions_asked(zone, AskColumns, AskRows) == set()
    assert partitions_asked(zone, AskUpdates) == {0, 1, 2, 3}
    assert (second.base, from_base(second)) == (first.export_id, (4, 0))
    whole = export(zone, tmp_path / "whole")
    assert (second.digest, second.rows, second.bytes) == (whole.digest, whole.rows, whole.bytes)
    assert [p.counter for p in second.partitions] == [p.counter for p in whole.partitions]
    for part, same in zip(second.partitions, whole.partitions, strict=True):
        rows = (tmp_path / "second" / part.file, tmp_path / "whole" / same.file)
        assert pq.read_table(rows[0]).equals(pq.read_table(rows[1])), "counters and terms, too"

    zone.put(KEYS[5], b"once more")
    third = export(zone, tmp_path / "third", base_of(tmp_path / "second"))
    assert (third.base, from_base(third)) == (second.export_id, (4, 0))
    assert rows_in(tmp_path / "third") == clients_rows(zone)


def test_nothing_is_read_of_a_partition_that_did_not_change(
    zone: LoggedZone, tmp_path: Path
) -> None:
    export(zone, tmp_path / "base")
    zone.put(IN_0[0], b"changed")

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert partitions_asked(zone, AskColumns, AskRows) == set()
    assert partitions_asked(zone, AskUpdates) == {0}
    assert from_base(made) == (4, 0)
    assert rows_in(tmp_path / "second") == clients_rows(zone)


def test_updates_until_the_cut_are_in_it(zone: LoggedZone, tmp_path: Path) -> None:
    export(zone, tmp_path / "base")
    written = threading.Lock()

    def writing(ask: object, answer: Callable[[Any], Any]) -> Any:
        if isinstance(ask, AskDigests) and written.acquire(blocking=False):
            for key in KEYS:
                zone.put(key, b"meanwhile")
        return answer(ask)

    watch(zone, writing)

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert from_base(made) == (4, 0)
    assert set(rows_in(tmp_path / "second").values()) == {(b"meanwhile", 0)}


def watch(zone: LoggedZone, seen: Callable[[Any, Callable[[Any], Any]], Any], *only: int) -> None:
    """Have `seen` answer the questions to these agents, or all; it gets the usual answer, too."""
    for number in only or range(len(zone.agents)):
        agent = zone.agents[number]
        usual = agent.on_ask
        assert usual is not None

        def ask(message: Any, usual: Any = usual) -> Any:
            return seen(message, usual)

        agent.on_ask = ask


def test_a_flush_since_the_base_deletes_its_rows(zone: LoggedZone, tmp_path: Path) -> None:
    export(zone, tmp_path / "base")
    zone.flush(0)
    zone.put(IN_0[1], b"after it")

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert from_base(made) == (4, 0)
    found = rows_in(tmp_path / "second")
    assert {key for key in found if key_partition(key, 4) == 0} == {IN_0[1]}
    assert found == clients_rows(zone)


@pytest.mark.parametrize("after", ["stays", "changes", "goes"])
def test_internal_rows_count_though_no_export_has_them(
    zone: LoggedZone, tmp_path: Path, after: str
) -> None:
    zone.put_all([(INTERNAL, b"in doubt", 0)], 0)
    first = export(zone, tmp_path / "base")
    assert [part.internal for part in first.partitions] == [1, 0, 0, 0]
    if after != "stays":
        zone.put_all([(INTERNAL, b"other" if after == "changes" else None, 0)], 0)
    zone.put_all([(RESERVED + b"another", b"since", 0)], 1)
    zone.put(IN_0[0], b"changed")

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert from_base(made) == (4, 0)
    assert partitions_asked(zone, AskColumns, AskRows) == set()
    assert rows_in(tmp_path / "second") == clients_rows(zone)
    assert [part.internal for part in made.partitions] == [after != "goes", 1, 0, 0]


def test_a_log_that_does_not_reach_back_has_its_partition_read_whole(
    zone: LoggedZone, tmp_path: Path
) -> None:
    export(zone, tmp_path / "base")
    zone.put(IN_0[0], b"changed")
    zone.log_from = zone.copy(0, 0).lwm
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "second", base)

    assert read_whole(made) == {0: "LogTooShort"}
    assert partitions_asked(zone, AskColumns, AskRows) == {0}
    assert from_base(made) == (3, 1)
    assert reasons(made) == "the update log no longer reaches back to the base (1)"
    assert f"begins with update {zone.log_from + 1}" in base.details[Whole.LOG_TOO_SHORT]
    assert rows_in(tmp_path / "second") == clients_rows(zone)


def test_a_copy_whose_log_reaches_back_is_preferred(zone: LoggedZone, tmp_path: Path) -> None:
    export(zone, tmp_path / "base")
    for key in KEYS:
        zone.put(key, b"changed")

    def short(ask: Any, answer: Callable[[Any], Any]) -> Any:
        if isinstance(ask, AskUpdates):
            return UpdatesTold(ask.zone_name, ask.partition, None, 1000, 1000, ())
        return answer(ask)

    watch(zone, short, 1)

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert from_base(made) == (4, 0)
    assert {part.node for part in made.partitions} == {"agent-2"}
    assert rows_in(tmp_path / "second") == clients_rows(zone)


@pytest.mark.parametrize(("reach", "why"), [(True, "LogTooShort"), (False, "LogUnreadable")])
def test_a_log_that_is_cut_or_fails_after_it_was_chosen_is_no_end(
    zone: LoggedZone, tmp_path: Path, reach: bool, why: str
) -> None:
    export(zone, tmp_path / "base")
    zone.put(IN_0[0], b"changed")

    def cut(ask: Any, answer: Callable[[Any], Any]) -> Any:
        if isinstance(ask, AskUpdates) and ask.upto > ask.after:
            problem = "" if reach else "the disk is broken"
            return UpdatesTold(ask.zone_name, ask.partition, None, 1000, 1000, (), problem)
        return answer(ask)

    watch(zone, cut)

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert read_whole(made) == {0: why}
    assert rows_in(tmp_path / "second") == clients_rows(zone)


@pytest.mark.parametrize("probes", [True, False])
def test_an_agent_that_cannot_read_its_log_says_why(
    zone: LoggedZone, tmp_path: Path, probes: bool
) -> None:
    """Until another copy, or a later attempt, tells it the base is not refused."""
    export(zone, tmp_path / "base")
    zone.put(IN_0[0], b"changed")
    left = [True]

    def passing(ask: Any, answer: Callable[[Any], Any]) -> Any:
        if isinstance(ask, AskUpdates) and left and (ask.upto == ask.after) == probes:
            left.pop()
            return UpdatesTold(ask.zone_name, ask.partition, None, 0, 0, (), "no copy on agent n2")
        return answer(ask)

    watch(zone, passing)

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert not left
    assert from_base(made) == (4, 0)

    def always(ask: Any, answer: Callable[[Any], Any]) -> Any:
        left.append(True)
        return passing(ask, answer)

    watch(zone, always)
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "third", base)

    assert read_whole(made) == {0: "LogUnreadable"}
    assert "no copy on agent n2" in base.details[Whole.LOG_UNREADABLE]
    assert rows_in(tmp_path / "third") == clients_rows(zone)


def test_a_log_that_may_be_read_later_outweighs_one_that_is_cut(
    zone: LoggedZone, tmp_path: Path
) -> None:
    export(zone, tmp_path / "base")
    zone.put(IN_0[0], b"changed")
    asked: list[Any] = []

    def broken_once(ask: Any, answer: Callable[[Any], Any]) -> Any:
        if isinstance(ask, AskUpdates):
            asked.append(ask)
            if len(asked) == 1:
                return UpdatesTold(ask.zone_name, ask.partition, None, 0, 0, (), "for a moment")
        return answer(ask)

    def short(ask: Any, answer: Callable[[Any], Any]) -> Any:
        if isinstance(ask, AskUpdates):
            return UpdatesTold(ask.zone_name, ask.partition, None, 1000, 1000, ())
        return answer(ask)

    watch(zone, broken_once, 1)
    watch(zone, short, 0, 2)

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert len(asked) > 1
    assert from_base(made) == (4, 0)


@pytest.mark.parametrize("flushes", [False, True])
def test_updates_that_take_too_much_memory_have_their_partition_read_whole(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: bool
) -> None:
    export(zone, tmp_path / "base")
    for number in range(3):
        for key in IN_0[:2]:
            zone.put(key, b"%d" % number)
    if flushes:
        zone.flush(0)
    for key in IN_0[2:4]:
        zone.put(key, b"x" * 100)
    monkeypatch.setattr(base_export, "UPDATES_BYTES_MAX", 4 * cut.ROW_OVERHEAD + 100)
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "second", base)

    assert read_whole(made) == ({} if flushes else {0: "TooManyUpdates"})
    assert flushes or "4 keys have changed since the base" in base.details[Whole.TOO_MANY_UPDATES]
    assert rows_in(tmp_path / "second") == clients_rows(zone)


def test_a_key_that_is_written_again_takes_no_more_memory() -> None:
    changes = cut.Changes(bytes_max=cut.ROW_OVERHEAD + 30)
    for number in range(100):
        changes.add(Update(number, 1, ((b"key", b"x" * (number % 20), 0),)))
    assert len(changes.rows) == 1
    with pytest.raises(cut.TooManyUpdates):
        changes.add(Update(100, 1, ((b"key", b"x" * 28, 0),)))


def test_copies_that_are_before_the_base_have_another_history(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export(zone, tmp_path / "base")
    usual, changed = export_group.watch_digests, list[bool]()

    def earlier(*arguments: Any, **named: Any) -> Any:
        told = usual(*arguments, **named)
        found = told[0]
        if not changed and not isinstance(found, str):
            changed.append(True)
            told = {**told, 0: found._replace(counter=first.partitions[0].counter - 1)}
        return told

    monkeypatch.setattr(export_group, "watch_digests", earlier)

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert read_whole(made) == {0: "OtherHistory"}
    assert rows_in(tmp_path / "second") == clients_rows(zone)


def test_a_cut_of_another_history_is_not_used(zone: LoggedZone, tmp_path: Path) -> None:
    export(zone, tmp_path / "base")
    for agent in range(3):
        copy = zone.copy(agent, 0)
        copy.term, copy.lineage = 5, Lineage(0, 0, (Entry(3, 1), Entry(5, copy.lwm)))

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert read_whole(made) == {0: "OtherHistory"}
    assert rows_in(tmp_path / "second") == clients_rows(zone)
    assert made.partitions[0].term == 5


def test_a_new_primary_that_wrote_nothing_makes_no_other_history(
    zone: LoggedZone, tmp_path: Path
) -> None:
    for agent in range(3):
        copy = zone.copy(agent, 0)
        copy.term, copy.lineage = 5, Lineage(0, 0, (Entry(3, 1), Entry(5, copy.lwm + 1)))
    first = export(zone, tmp_path / "base")
    assert first.partitions[0].term == 3, "that of the update, not of the copy"

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert from_base(made) == (4, 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("gone", Whole.BASE_UNUSABLE),
        ("cut off", Whole.BASE_UNUSABLE),
        ("order", Whole.BASE_UNUSABLE),
        ("column", Whole.BASE_UNUSABLE),
        ("term", Whole.BASE_UNUSABLE),
        ("higher term", Whole.BASE_UNUSABLE),
        ("higher counter", Whole.BASE_UNUSABLE),
        ("value", Whole.DIGEST_DIFFERS),
        ("counter", Whole.DIGEST_DIFFERS),
        ("row", Whole.DIGEST_DIFFERS),
    ],
)
def test_no_damage_of_the_base_gets_into_an_export(
    zone: LoggedZone, tmp_path: Path, change: str, why: Whole
) -> None:
    first = export(zone, tmp_path / "base")
    changed(tmp_path / "base" / first.partitions[2].file, change)
    zone.put(IN_0[0], b"changed")
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "second", base)

    assert read_whole(made) == {2: why}
    assert f"`quorate verify {tmp_path / 'base'}`" in base.details[why]
    if why is Whole.DIGEST_DIFFERS:
        assert "the updates and internal rows of agent-" in base.details[why]
        assert "`quorate validate z --level rows`" in base.details[why]
    terms = pq.read_table(tmp_path / "second" / made.partitions[2].file)["term"].to_pylist()
    assert set(terms) == {3}
    assert list(base.details) == [why]
    assert rows_in(tmp_path / "second") == clients_rows(zone)
    assert partitions_asked(zone, AskColumns, AskRows) == {2}


def test_large_values_are_read_group_by_group(tmp_path: Path) -> None:
    """Rows of 100 kB: 16,384 of them would be 1.6 GB."""
    one = LoggedZone()
    with listening(one):
        for number in range(900):
            one.put(b"large-%03d" % number, number.to_bytes(4) * 25_000)
        target = Target(str(tmp_path / "base"))
        copies = ZoneCopies("z", tuple(each.address for each in one.agents), one.cluster, 1, 3)
        made = export_zone(target, copies, "u", {}, QUICK, None)
    part = made.partitions[0]

    sizes = [chunk.size for chunk in part_columns(target, part, None)]

    assert sum(sizes) == part.bytes == 900 * 100_009
    assert max(sizes) <= 41_000_000


def test_a_writer_keeps_its_row_groups_small(tmp_path: Path) -> None:
    rows = [(b"%04d" % number, 1, 1, 0, b"x" * 100_000) for number in range(900)]
    with PartWriter(tmp_path / "file", 0) as writer:
        writer.add(RowColumns.of_rows(rows, values=True))

    found = pq.read_metadata(tmp_path / "file")
    sizes = [found.row_group(group).num_rows * 100_004 for group in range(found.num_row_groups)]
    assert sum(sizes) == writer.content.bytes
    assert max(sizes) <= 42_000_000


def test_a_base_with_a_row_group_that_no_export_has_is_not_read(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(zone, tmp_path / "base")
    monkeypatch.setattr(part_file, "FOREIGN_GROUP_BYTES_MAX", 100)
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "second", base)

    assert set(read_whole(made).values()) == {Whole.BASE_UNUSABLE}
    assert "too many for an export" in base.details[Whole.BASE_UNUSABLE]


@pytest.mark.parametrize("what", ["columns_digest", "joined"])
def test_rows_of_a_base_that_cannot_be_folded_are_read_whole(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    export(zone, tmp_path / "base")
    for key in IN_0[:2]:
        zone.put(key, b"changed")
    usual, failed = getattr(cut, what), list[bool]()

    def once(*arguments: Any) -> Any:
        if not failed:
            failed.append(True)
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return usual(*arguments)

    monkeypatch.setattr(cut, what, once)
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "second", base)

    assert list(read_whole(made).values()) == [Whole.BASE_UNUSABLE]
    assert "offset overflow" in base.details[Whole.BASE_UNUSABLE]
    assert rows_in(tmp_path / "second") == clients_rows(zone)


def test_a_manifest_with_another_counter_is_not_believed(zone: LoggedZone, tmp_path: Path) -> None:
    """The updates between the real cut and the one that it says are not in the base."""
    export(zone, tmp_path / "base")
    for _ in range(3):
        zone.put(IN_0[0], b"changed")
        zone.put(IN_0[1], b"changed")
    path = tmp_path / "base" / MANIFEST
    told = json.loads(path.read_text())
    told["partitions"][0]["counter"] += 6
    path.write_text(json.dumps(told))

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert read_whole(made) == {0: "DigestDiffers"}
    assert rows_in(tmp_path / "second") == clients_rows(zone)


def test_a_base_of_another_zone_is_of_no_use(zone: LoggedZone, tmp_path: Path) -> None:
    export(zone, tmp_path / "base")
    base = base_of(tmp_path / "base")

    made = export(zone, tmp_path / "second", base, uid="another")

    assert set(read_whole(made).values()) == {"OtherZone"}
    assert from_base(made) == (0, 4)
    assert "has the uid u, not another" in base.details[Whole.OTHER_ZONE]
    assert rows_in(tmp_path / "second") == clients_rows(zone)
    other = LoggedZone(partitions=2)
    with listening(other):
        export(other, tmp_path / "two")
        base = base_of(tmp_path / "two")
        assert from_base(export(zone, tmp_path / "third", base)) == (0, 4)
    assert "number of partitions 2, not 4" in base.details[Whole.OTHER_ZONE]


def test_a_base_of_an_earlier_build_is_used(zone: LoggedZone, tmp_path: Path) -> None:
    """It does not say how many internal rows there were: they are asked for."""
    zone.put_all([(INTERNAL, b"in doubt", 0)], 0)
    export(zone, tmp_path / "base")
    path = tmp_path / "base" / MANIFEST
    told = json.loads(path.read_text())
    del told["base"]
    for part in told["partitions"]:
        for name in ("internal", "from_base", "read_whole"):
            del part[name]
    path.write_text(json.dumps(told))

    made = export(zone, tmp_path / "second", base_of(tmp_path / "base"))

    assert from_base(made) == (4, 0)
    assert PartTold(0, "f", 1, 1, "n", 1, 1, 1, 1, "").internal is None
