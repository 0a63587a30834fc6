"""An export is exactly the zone at one counter of each partition, whatever is written meanwhile."""

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from quorate.facts.keyspace import RESERVED, key_partition
from quorate.protocol.messages.formats import Formats
from quorate.protocol.messages.tools import AskColumns
from quorate_spark.exports import export_group
from quorate_spark.exports.cut import scan_copy
from quorate_spark.exports.export_zone import _Export, export_zone
from quorate_spark.exports.manifest import MANIFEST, Content, Manifest, read_manifest
from quorate_spark.exports.target import (
    REGION_VARIABLES,
    FileThere,
    Target,
    TargetRefused,
    TargetUnreadable,
    region_of,
)
from quorate_spark.exports.verify import verify
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK, listening

KEYS = [b"key-%02d" % number for number in range(40)]


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    """Four partitions with some keys, one of them deleted, and a row of the protocol's own."""
    zone = LoggedZone(partitions=4)
    for number, key in enumerate(KEYS):
        zone.put(key, b"value-%d" % number, 1_999_999_999_999 if number % 2 else 0)
    zone.put(KEYS[0], None)
    zone.put_all([(RESERVED + b"part", b"in doubt", 0)], 0)
    with listening(zone):
        yield zone


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(str(tmp_path / "export"))


def copies_of(zone: LoggedZone) -> ZoneCopies:
    agents = tuple(agent.address for agent in zone.agents)
    return ZoneCopies("z", agents, zone.cluster, zone.partitions, len(zone.agents))


def export(zone: LoggedZone, target: Target) -> Manifest:
    return export_zone(target, copies_of(zone), "uid-1", {"partitions": 4}, QUICK, None)


def rows_in(target: Target, manifest: Manifest) -> dict[bytes, tuple[bytes, int]]:
    found: dict[bytes, tuple[bytes, int]] = {}
    for part in manifest.partitions:
        for row in pq.read_table(Path(target.text) / part.file).to_pylist():
            assert row["partition"] == part.partition == key_partition(row["key"], 4)
            assert row["counter"] <= part.counter
            found[row["key"]] = (row["value"], row["expires_at"])
    return found


def clients_rows(zone: LoggedZone) -> dict[bytes, tuple[bytes | None, int]]:
    return {key: row for key, row in zone.rows().items() if not key.startswith(RESERVED)}


def names(target: Target) -> list[str]:
    return [each.name for each in target.files()]


def test_an_export_has_the_rows_of_clients_and_a_manifest(zone: LoggedZone, target: Target) -> None:
    manifest = export(zone, target)

    assert rows_in(target, manifest) == clients_rows(zone)
    assert manifest == read_manifest(target) == verify(target, lambda done, total: None)
    told = json.loads((Path(target.text) / MANIFEST).read_text())
    assert told["zone"] == {
        "name": "z",
        "uid": "uid-1",
        "cluster": "c",
        "partitions": 4,
        "spec": {"partitions": 4},
    }
    content = Content()
    for key, (value, expires_at) in clients_rows(zone).items():
        content.add([key], [value or b""], [expires_at])
    assert (manifest.rows, manifest.bytes) == (39, content.bytes)
    assert manifest.digest == content.hex == told["digest"]
    assert {part.node for part in manifest.partitions} == {"agent-1", "agent-2"}, "no primary"
    assert [part.counter for part in manifest.partitions] == [
        zone.copy(0, partition).lwm for partition in range(4)
    ]


def test_what_is_written_meanwhile_is_in_it_up_to_the_counter_of_the_cut(
    zone: LoggedZone, target: Target
) -> None:
    """Keys before and behind the place that is read are written, deleted and created."""

    def write(number: int) -> None:
        zone.put(KEYS[number % 40], b"meanwhile-%d" % number)
        zone.put(KEYS[(number * 7) % 40], None)
        zone.put(b"new-%d" % (number % 9), b"n%d" % number)
        zone.put(KEYS[39], b"hot-%d" % number, 1_888_888_888_888)

    zone.while_read = write

    manifest = export(zone, target)

    zone.while_read = lambda number: None
    expected: dict[bytes, tuple[bytes, int]] = {}
    for part in manifest.partitions:
        for update in zone.logs[part.partition]:
            if update.counter <= part.counter:
                for key, value, expires_at in update.operations:
                    assert key is not None
                    expected.pop(key, None)
                    if value is not None and not key.startswith(RESERVED):
                        expected[key] = (value, expires_at)
    assert rows_in(target, manifest) == expected
    assert any(value.startswith(b"hot") for value, _ in expected.values())


@pytest.mark.parametrize("is_adopted", [False, True], ids=["is repaired", "stands still"])
def test_a_copy_that_is_behind_is_as_one_whose_agent_is_away(
    zone: LoggedZone, target: Target, is_adopted: bool
) -> None:
    for partition in range(4):
        behind = zone.copy(2, partition)
        behind.adopted = is_adopted
        behind.lwm -= 1

    manifest = export(zone, target)

    assert rows_in(target, manifest) == clients_rows(zone)
    assert {(part.node, part.copies_agree) for part in manifest.partitions} == {("agent-1", 2)}


def test_copies_that_are_behind_in_a_majority_make_no_export(
    zone: LoggedZone, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_group, "ATTEMPTS_MAX", 1)
    for agent in (1, 2):
        zone.copy(agent, 3).lwm -= agent

    with pytest.raises(Unreadable, match="no counter at which every copy told its digest"):
        export(zone, target)

    assert names(target) == []


def test_a_flush_meanwhile_empties_what_was_read_before_it(
    zone: LoggedZone, target: Target
) -> None:
    def write(number: int) -> None:
        if number == 2:
            zone.flush(0)
            zone.put_all([(KEYS[1], b"after", 0)], key_partition(KEYS[1], 4))

    zone.while_read = write

    manifest = export(zone, target)

    assert manifest.partitions[0].node == "agent-1", "its rows were cut at the first attempt"
    found = rows_in(target, manifest)
    left = {key for key in found if key_partition(key, 4) == 0}
    assert left == {key for key in KEYS[1:2] if key_partition(key, 4) == 0}
    assert found[KEYS[1]] == (b"after", 0)


def test_a_copy_that_is_out_voted_is_not_exported(zone: LoggedZone, target: Target) -> None:
    for partition in range(4):
        rows = zone.copy(1, partition).rows
        key = max(rows)
        rows[key] = (*rows[key][:3], b"damaged")

    manifest = export(zone, target)

    assert {part.node for part in manifest.partitions} == {"agent-2"}
    assert {part.copies_agree for part in manifest.partitions} == {2}
    assert rows_in(target, manifest) == clients_rows(zone)


def test_a_copy_whose_rows_are_not_those_of_its_digest_is_not_exported(
    zone: LoggedZone, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a row that was damaged on disk, behind the agent that keeps the digest."""
    for partition in range(4):
        copy = zone.copy(2, partition)
        right = copy.row_sum()
        monkeypatch.setattr(copy, "row_sum", lambda right=right: right)
        key = max(copy.rows)
        copy.rows[key] = (*copy.rows[key][:3], b"damaged")

    manifest = export(zone, target)

    assert {part.node for part in manifest.partitions} == {"agent-1"}
    assert rows_in(target, manifest) == clients_rows(zone)
    assert len(names(target)) == 5, "the file of the damaged copy is gone"


def test_an_agent_that_is_away_does_not_matter_while_a_majority_is_there(
    zone: LoggedZone, target: Target, tmp_path: Path
) -> None:
    zone.agents[1].end()

    manifest = export(zone, target)

    assert {part.node for part in manifest.partitions} == {"agent-2"}
    assert {part.copies_agree for part in manifest.partitions} == {2}
    assert rows_in(target, manifest) == clients_rows(zone)
    zone.agents[0].end()
    with pytest.raises(Unreadable, match="only 1 of 3 copies answered"):
        export(zone, Target(str(tmp_path / "other")))


def test_a_limited_export_reads_rows_only_of_agents_that_can_hold_the_limit(
    zone: LoggedZone, target: Target, tmp_path: Path
) -> None:
    limited = replace(QUICK, max_mib_per_second_per_agent=8)

    def export_limited(into: Target) -> Manifest:
        return export_zone(into, copies_of(zone), "uid-1", {"partitions": 4}, limited, None)

    zone.agents[1].formats = Formats(2, 7)
    manifest = export_limited(target)

    assert {part.node for part in manifest.partitions} <= {"agent-0", "agent-2"}
    assert {part.copies_agree for part in manifest.partitions} == {3}
    assert not any(isinstance(each, AskColumns) for each in zone.agents[1].asked)
    assert rows_in(target, manifest) == clients_rows(zone)
    for agent in zone.agents:
        agent.formats = Formats(2, 7)
    with pytest.raises(Unreadable, match="in which no reading is paced: upgrade the agent, or"):
        export_limited(Target(str(tmp_path / "other")))


def test_where_no_majority_agrees_there_is_no_export(zone: LoggedZone, target: Target) -> None:
    for agent in (0, 1):
        rows = zone.copy(agent, 2).rows
        key = max(rows)
        rows[key] = (*rows[key][:3], b"damaged-%d" % agent)

    with pytest.raises(Unreadable, match=r"partition 2: 1 of 3 copies agree .* no majority"):
        export(zone, target)

    assert names(target) == []


def test_a_log_that_does_not_reach_back_makes_no_cut(zone: LoggedZone, target: Target) -> None:
    def write(number: int) -> None:
        zone.put(KEYS[3], b"%d" % number)
        zone.log_from = zone.copy(0, key_partition(KEYS[3], 4)).lwm

    zone.while_read = write

    with pytest.raises(Unreadable, match="too much was written while its rows were read"):
        export(zone, target)

    assert names(target) == []


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interrupted_export_leaves_nothing(
    zone: LoggedZone, target: Target, ending: type[BaseException]
) -> None:
    seen: list[list[str]] = []

    def progress(done: int, total: int) -> None:
        seen.append(names(target))
        if len(seen[-1]) == 4:
            raise ending

    with pytest.raises(ending):
        export_zone(target, copies_of(zone), "", {}, QUICK, None, progress)

    assert len(seen[-1]) == 4
    assert names(target) == []


def test_what_a_lost_process_left_is_replaced_and_nothing_else(
    zone: LoggedZone, target: Target
) -> None:
    target.make()
    folder = Path(target.text)
    (folder / "partition-00001-0123abcd.parquet").write_bytes(b"half")
    (folder / f"{MANIFEST}.0123abcd.half").write_bytes(b"{")
    (folder / f"{MANIFEST}.half").write_bytes(b"{")
    export(zone, target)
    assert len(names(target)) == 5

    with pytest.raises(TargetRefused, match="has an export already"):
        export(zone, target)
    verify(target, lambda done, total: None)
    (folder / MANIFEST).unlink()
    (folder / "mine.txt").touch()
    with pytest.raises(TargetRefused, match=r"has mine\.txt, which is of no export"):
        export(zone, target)
    assert len(names(target)) == 5


def test_another_export_into_the_same_place_is_noticed(zone: LoggedZone, target: Target) -> None:
    def progress(done: int, total: int) -> None:
        for path in sorted(Path(target.text).glob("partition-*"))[:-1]:
            path.unlink()

    with pytest.raises(TargetRefused, match="does another export write there"):
        export_zone(target, copies_of(zone), "", {}, QUICK, None, progress)

    assert names(target) == []


def test_an_export_that_ends_meanwhile_is_left_whole(zone: LoggedZone, target: Target) -> None:
    ended: list[Manifest] = []

    def progress(done: int, total: int) -> None:
        if done and not ended:
            ended.append(export(zone, target))

    with pytest.raises(TargetRefused, match=r"partition-00000-.* it is not there"):
        export_zone(target, copies_of(zone), "", {}, QUICK, None, progress)

    assert verify(target, lambda done, total: None) == ended[0]
    assert names(target) == [MANIFEST, *(part.file for part in ended[0].partitions)]


def test_a_manifest_is_never_replaced(
    zone: LoggedZone, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another export ends just before the manifest is written: after every check."""
    write_last = Target.write_last
    ended: list[Manifest] = []

    def write(self: Target, name: str, data: bytes) -> None:
        monkeypatch.setattr(Target, "write_last", write_last)
        monkeypatch.setattr(_Export, "_delete_left", lambda self: None)
        ended.append(export(zone, target))
        write_last(self, name, data)

    monkeypatch.setattr(Target, "write_last", write)
    with pytest.raises(TargetRefused, match=r"has manifest\.json by now"):
        export(zone, target)

    assert verify(target, lambda done, total: None) == ended[0]
    assert names(target) == [MANIFEST, *(part.file for part in ended[0].partitions)]


def test_files_that_go_while_the_manifest_is_written_are_noticed(
    zone: LoggedZone, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_last = Target.write_last

    def write(self: Target, name: str, data: bytes) -> None:
        next(Path(target.text).glob("partition-00002-*")).unlink()
        write_last(self, name, data)

    monkeypatch.setattr(Target, "write_last", write)
    with pytest.raises(TargetRefused, match="does another export write there"):
        export(zone, target)

    assert names(target) == []


def test_a_folder_without_links_gets_its_manifest(
    zone: LoggedZone, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(half: str, path: str) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    export(zone, target)

    with pytest.raises(TargetRefused, match=r"has manifest\.json by now"):
        target.write_last(MANIFEST, b"{}")
    verify(target, lambda done, total: None)
    assert len(names(target)) == 5


def test_files_of_an_export_are_for_their_owner(zone: LoggedZone, target: Target) -> None:
    before = os.umask(0)
    try:
        export(zone, target)
    finally:
        os.umask(before)

    folder = Path(target.text)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("damage", ["value", "cut", "gone", "swapped"])
def test_verify_finds_what_is_not_as_it_was_exported(
    zone: LoggedZone, target: Target, damage: str
) -> None:
    manifest = export(zone, target)
    first, second = (Path(target.text) / part.file for part in manifest.partitions[:2])
    if damage == "value":
        table = pq.read_table(first)
        values = table["value"].to_pylist()
        values[0] = b"x" * len(values[0])
        pq.write_table(table.set_column(2, table.schema.field(2), [values]), first)
    elif damage == "cut":
        first.write_bytes(first.read_bytes()[:-9])
    elif damage == "gone":
        first.unlink()
    else:
        whole = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(whole)

    with pytest.raises(TargetRefused, match="partition-00000"):
        verify(target, lambda done, total: None)


def test_a_manifest_that_was_changed_is_refused(zone: LoggedZone, target: Target) -> None:
    export(zone, target)
    path = Path(target.text) / MANIFEST
    told = json.loads(path.read_text())
    told["partitions"][1]["digest"] = "00" * 16
    path.write_text(json.dumps(told))
    with pytest.raises(TargetRefused, match="contradicts itself"):
        read_manifest(target)
    path.write_text(json.dumps({**told, "format": 3}))
    with pytest.raises(TargetRefused, match="has format 3"):
        read_manifest(target)
    path.write_text("{")
    with pytest.raises(TargetRefused, match="not as an export has it"):
        read_manifest(target)
    path.unlink()
    with pytest.raises(TargetRefused, match="is no export"):
        read_manifest(target)


@pytest.mark.parametrize("field", ["rows", "bytes"])
def test_a_manifest_whose_sums_are_not_those_of_its_partitions_is_refused(
    zone: LoggedZone, target: Target, field: str
) -> None:
    export(zone, target)
    path = Path(target.text) / MANIFEST
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, field: told[field] + 1}))

    with pytest.raises(TargetRefused, match="contradicts itself"):
        read_manifest(target)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3://key:SECRET@bucket/x", "credentials in the address"),
        ("s3://SECRET@bucket/x", "credentials in the address"),
        ("s3://AKIAX:SECRET/x@bucket/x", "credentials in the address"),
        ("s3://AKIAX%3aSECRET/x", "credentials in the address"),
        ("s3://bucket/SECRET@bucket/x", "credentials in the address"),
        ("s3://bucket/x?endpoint_override=http://u:SECRET@host:9", "credentials in the address"),
        ("s3://bucket/x?endpoint_override=http://u:SECRET%40host:9", "credentials in the address"),
        ("gs://SECRET@bucket/x", "credentials in the address"),
        ("file://u:SECRET@host/x", "credentials in the address"),
        ("s3://bucket/x?access_key=k&secret_key=SECRET", "option access_key is not known"),
        ("s3://[x", "no name of a bucket"),
        ("s3:///x", "no name of a bucket"),
        ("ftp://u:SECRET@host/x", "begins with file://, s3://"),
        ("k:SECRET@x://host/x", "begins with file://, s3://"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_without_its_secrets(text: str, why: str) -> None:
    with pytest.raises(TargetRefused) as refused:
        Target(text)
    assert why in str(refused.value)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "variables", "region"),
    [
        ("", {}, "of-books"),
        ("?region=eu-1", {}, "eu-1"),
        ("?endpoint_override=minio:9000", {}, None),
        ("", {"AWS_REGION": "eu-2"}, None),
        ("", {"AWS_DEFAULT_REGION": "eu-2"}, None),
        ("", {"AWS_ENDPOINT_URL": "http://minio:9000"}, None),
    ],
)
def test_the_region_of_a_bucket_is_found_by_its_name_where_nothing_says_it(
    monkeypatch: pytest.MonkeyPatch, options: str, variables: dict[str, str], region: str | None
) -> None:
    given = buckets_without_internet(monkeypatch, lambda bucket: f"of-{bucket}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    Target(f"s3://books/x{options}")
    Target(f"s3://books/y{options}")

    assert [each.get("region") for each in given] == [region, region]


def test_a_region_that_cannot_be_found_is_left_to_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(bucket: str) -> str:
        raise OSError("no such bucket")

    given = buckets_without_internet(monkeypatch, fail)

    Target("s3://books/x")

    assert [each.get("region") for each in given] == [None]


def buckets_without_internet(
    monkeypatch: pytest.MonkeyPatch, resolve: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Return the options with which buckets will be opened; nothing in the environment counts."""
    given: list[dict[str, Any]] = []
    for name in REGION_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    region_of.cache_clear()
    monkeypatch.setattr("pyarrow.fs.resolve_s3_region", resolve)
    monkeypatch.setattr("pyarrow.fs.S3FileSystem", lambda **options: given.append(options))
    return given


@pytest.mark.parametrize("is_written", [True, False])
def test_an_export_whose_manifest_may_be_there_says_so(
    zone: LoggedZone, target: Target, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """The connection is lost as its manifest is written, or before, and stays so."""
    write, files, lost = target.write_last, target.files, threading.Event()

    def write_last(name: str, data: bytes) -> None:
        write(name, data)
        lost.set()
        raise TargetRefused(f"{name} cannot be written: connection lost")

    def listed() -> list[FileThere]:
        if lost.is_set():
            raise TargetRefused("cannot be listed: connection lost")
        return files()

    def sizes(names: Iterable[str]) -> dict[str, int]:
        if not is_written:
            lost.set()
        wanted = {*names}
        return {each.name: each.bytes for each in listed() if each.name in wanted}

    for name, fake in (("write_last", write_last), ("files", listed), ("sizes", sizes)):
        monkeypatch.setattr(target, name, fake)
    with pytest.raises(TargetRefused, match="connection lost") as failed:
        export(zone, target)

    assert isinstance(failed.value, TargetUnreadable) == is_written
    said = f"it may be there all the same: `quorate verify {target.text}` tells"
    assert (said in str(failed.value)) == is_written


def test_a_folder_and_its_uri_are_the_same_place(zone: LoggedZone, tmp_path: Path) -> None:
    manifest = export(zone, Target(f"file://{tmp_path}/a/b"))
    assert read_manifest(Target(str(tmp_path / "a" / "b"))) == manifest


def test_copies_that_are_read_at_once_are_given_up_together(zone: LoggedZone) -> None:
    """The one that is read meanwhile asks for no more rows."""
    reading = copies_of(zone).read(QUICK)
    ended = threading.Event()
    ended.set()

    with pytest.raises(Unreadable, match="partition 0: the export has ended"):
        scan_copy(reading.owned[0][1], "z", zone.cluster, QUICK, None, ended)

    assert sum(isinstance(asked, AskColumns) for asked in zone.agents[1].asked) == 1


def test_copies_of_several_partitions_are_read_at_once(zone: LoggedZone, target: Target) -> None:
    met = threading.Barrier(2)

    def meet(number: int) -> None:
        if number <= 2:
            met.wait(1)

    zone.while_read = meet

    assert export(zone, target).rows == 39
    assert not met.broken
