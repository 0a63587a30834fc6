"""Exports of a real cluster with a base: what is asked of the agents, and what they are made of."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redis import RedisCluster

from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskColumns, AskRows, AskUpdates, UpdatesTold
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects import resources
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_cluster.waiting import wait_until
from quorate_spark.exports.base_export import open_base
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.manifest import Manifest, read_manifest
from quorate_spark.exports.target import Target
from quorate_spark.reading.agent_link import AgentLink, read_cluster
from quorate_spark.reading.read_copies import open_link
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark_fixtures.exported_zones import LIBRARY, Damageable, Quorate, set_keys

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KEYS, PARTITIONS = 2000, 4
LONG = b"x" * 1024 * 1024
LOG_MIB = 64 // PARTITIONS
"""Of the log of one copy, as long as an agent has all copies of one zone."""


def manifest_of(place: Path) -> Manifest:
    return read_manifest(Target(str(place)))


def rows_in(place: Path) -> dict[bytes, tuple[bytes, int]]:
    rows: dict[bytes, tuple[bytes, int]] = {}
    for part in manifest_of(place).partitions:
        for row in pq.read_table(place / part.file).to_pylist():
            rows[row["key"]] = row["value"], row["expires_at"]
    return rows


def copies_of(cluster: DevCluster, folder: Path) -> ZoneCopies:
    api = cluster.api()
    zone = resources.zone(resources.fetch(api, ZONE, "library"))
    agents = resources.cluster(resources.fetch(api, STORAGE_CLUSTER, "main")).spec.dialed
    access = read_cluster("main", str(ClusterFolder(folder).secret_file("main")))
    return ZoneCopies("library", tuple(agents), access, PARTITIONS, 3, zone.metadata.uid)


def export_asking(
    copies: ZoneCopies, place: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Manifest, Counter[tuple[str, int]]]:
    """Export with a base; count the questions by their kind and partition."""
    asked: Counter[tuple[str, int]] = Counter()
    usual = AgentLink.ask

    def ask(link: AgentLink, question: Message, answer: type[Any]) -> Any:
        if isinstance(question, AskColumns | AskRows | AskUpdates):
            asked[type(question).__name__, question.partition] += 1
        return usual(link, question, answer)

    with monkeypatch.context() as patch:
        patch.setattr(AgentLink, "ask", ask)
        opened = open_base(Target(str(base)), None)
        made = export_zone(
            Target(str(place)), copies, copies.uid, {}, Settings(), None, base=opened
        )
    return made, asked


def rows_at_primaries(copies: ZoneCopies) -> int:
    owned = copies.read_answering(Settings()).owned
    return sum(each[0].state.rows for each in owned.values())


def log_is_cut(copies: ZoneCopies, partition: int, counter: int) -> bool:
    """Whether no copy's log reaches back to this counter."""
    for address in copies.agents:
        with open_link(address, copies.cluster, Settings()) as link:
            told = link.ask(AskUpdates("library", partition, counter, counter), UpdatesTold)
            if told.reaches_from <= counter:
                return False
    return True


def change(library: RedisCluster) -> int:
    """Write, delete and expire keys; return how many there are then."""
    for number in range(0, KEYS, 50):
        library.set(f"key-{number}", "anew")
    for number in range(1, KEYS, 100):
        library.delete(f"key-{number}")
    for number in range(2, KEYS, 100):
        library.pexpire(f"key-{number}", 1)
    for number in range(20):
        library.set(f"new-{number}", "new", pxat=1_999_999_999_999)
    return KEYS - 2 * len(range(0, KEYS, 100)) + 20


def test_an_export_with_a_base_is_what_one_without_is(
    quorate: Quorate,
    cluster: DevCluster,
    folder: Path,
    damageable: Damageable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, second, whole, third, fourth, last = (
        tmp_path / name for name in ("base", "second", "whole", "third", "fourth", "last")
    )
    with damageable(LIBRARY, 0) as library:
        set_keys(library, 0, KEYS)
        said = quorate("export", "library", str(base), "--verify")
        assert "from the base" not in said
        copies = copies_of(cluster, folder)
        left = change(library)
        wait_until(lambda: rows_at_primaries(copies) == left, "the end of what expires")

        made, asked = export_asking(copies, second, base, monkeypatch)

        assert {name for name, _ in asked} == {"AskUpdates"}, "no rows are read"
        assert {partition for _, partition in asked} == {0, 1, 2, 3}
        assert [part.from_base for part in made.partitions] == [True] * PARTITIONS
        quorate("export", "library", str(whole))
        assert manifest_of(whole).digest == made.digest
        assert rows_in(whole) == rows_in(second)
        assert made.rows == left
        assert rows_in(second)[b"key-50"] == (b"anew", 0)
        assert not {b"key-101", b"key-102"} & rows_in(second).keys()
        assert "is as it was exported" in quorate("verify", str(second))

        # One partition gets more updates than its log keeps; a file of the base is damaged.
        hot = key_partition(b"{hot}", PARTITIONS)
        for number in range(2 * LOG_MIB):
            library.set(f"{{hot}}-{number % 3}", LONG)
        cut = made.partitions[hot].counter
        wait_until(lambda: log_is_cut(copies, hot, cut), "a log that is cut")
        damaged = made.partitions[(hot + 1) % PARTITIONS]
        file = second / damaged.file
        table = pq.read_table(file)
        rows = table.to_pylist()
        rows[0]["value"] = b"damaged"
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)

        told = json.loads(
            quorate("export", "library", str(third), "--base", str(second), "--json").partition(
                "read whole:"
            )[0]
        )

        whys = {part["partition"]: part["read_whole"] for part in told["partitions"]}
        assert whys[hot] == "LogTooShort"
        assert whys[damaged.partition] == "DigestDiffers"
        assert sorted(whys.values())[:2] == ["", ""]
        quorate("verify", str(third))
        quorate("export", "library", str(fourth))
        assert told["digest"] == manifest_of(fourth).digest

    (tmp_path / "gone.yaml").write_text(f"{LIBRARY.rstrip()[:-1]}, deletionPolicy: Delete}}\n")
    quorate("apply", "-f", str(tmp_path / "gone.yaml"))
    quorate("delete", "zone", "library")
    quorate("apply", "-f", str(tmp_path / "zone.yaml"), "--wait", "60")

    said = quorate("export", "library", str(last), "--base", str(fourth))

    assert "0 of 4 partitions are made of the base" in said
    assert "of another zone, cluster or number of partitions (4)" in said
    assert rows_in(last) == {}
