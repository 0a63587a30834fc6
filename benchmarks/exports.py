"""Measure an export, its verification and an import, beside a plain Parquet write of the rows.

Then the same with encryption.  At last a part of the keys is changed, and the zone is exported
with the first export as its base, and without one.

    PYTHONPATH=core:operator:node_agent:spark:tests python benchmarks/exports.py --keys 200000

Three agents, three copies, all on this machine; nothing else is written meanwhile.  The goal: an
export takes at most twice as long as the plain write.
"""

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from quorate_cluster.cluster import Cluster
from quorate_link import blocking
from quorate_spark.exports.base_export import open_base
from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.import_zone import import_zone
from quorate_spark.exports.manifest import Manifest, read_manifest
from quorate_spark.exports.part_file import read_part
from quorate_spark.exports.target import Target
from quorate_spark.exports.verify import verify
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings

GOAL = 0.5
BATCH = 1000


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--changed", type=float, default=1, help="per cent, for the base")
    parser.add_argument("--storage", default="Persistent", choices=("InMemory", "Persistent"))
    asked = parser.parse_args()
    with Cluster(agents=3) as cluster:
        _measure(asked, cluster, cluster.folder / "exports")


def _measure(asked: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
    cluster.apply_zone("from", partitions=asked.partitions, storage=asked.storage)
    cluster.apply_zone("to", partitions=asked.partitions * 2, storage=asked.storage)
    _write(cluster, asked, range(asked.keys))
    target = Target(str(folder))
    settings = Settings()

    def copies(name: str, partitions: int) -> ZoneCopies:
        agents = tuple(agent.peer_address for agent in cluster.agents.values())
        return ZoneCopies(name, agents, cluster.access, partitions, 3)

    def export(key: ExportKey | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        export_zone(target, copies("from", asked.partitions), "", {}, settings, None, key=key)

    def read_back(key: ExportKey | None) -> None:
        verify(target, lambda done, total: None, key)

    took, used = dict[str, float](), dict[str, float]()
    secret = ExportKey(token_bytes(32))
    for how, key in ((", encrypted", secret), ("", None)):
        for what, work in (("export", export), ("verify", read_back)):
            runs = [_measured(partial(work, key)) for _ in range(3)]
            took[what + how], used[what + how] = map(min, zip(*runs, strict=True))
    manifest = read_manifest(target)
    took["import"] = _seconds(
        lambda: import_zone(
            target,
            manifest,
            copies("to", asked.partitions * 2),
            settings,
            continues=False,
            into_non_empty=False,
            wait_s=60,
        )
    )
    plain = min(_seconds(_plain_write(target, manifest, folder.parent)) for _ in range(3))
    print(f"{manifest.rows:,} rows of {asked.bytes} bytes, {asked.partitions} partitions")
    print(f"{'plain write':17} {plain:7.2f} s {manifest.rows / plain:12,.0f} rows/s")
    for what, seconds in took.items():
        share = plain / seconds
        print(f"{what:17} {seconds:7.2f} s {manifest.rows / seconds:12,.0f} rows/s {share:6.2f} x")
    for what in ("export", "verify"):
        more = used[f"{what}, encrypted"] / used[what]
        print(f"encryption: {what} needs {more:.2f} x the processor time of the process itself")
    met = "met" if plain / took["export"] >= GOAL else "not met"
    print(f"goal: an export has at least {GOAL} x the rows/s of the plain write: {met}")
    every = max(round(100 / asked.changed), 1)
    _write(cluster, asked, range(0, asked.keys, every), "y")
    for number, base in enumerate((open_base(target, None), None)):
        place = Target(str(folder.parent / f"changed-{number}"))
        zone = copies("from", asked.partitions)
        exporting = partial(export_zone, place, zone, "", {}, settings, None, base=base)
        with _bytes_read() as read:
            seconds = _seconds(exporting)
        taken = sum(part.from_base for part in read_manifest(place).partitions)
        print(
            f"{asked.changed:g} % changed, {taken} partitions from the base: {seconds:.2f} s,"
            f" {sum(read):,} bytes read of agents"
        )


def _write(cluster: Cluster, asked: argparse.Namespace, keys: range, fill: str = "0") -> None:
    client = cluster.client("from")
    for start in range(0, len(keys), BATCH):
        pipe: Any = client.pipeline()  # type: ignore[no-untyped-call]  # in redis-py
        with pipe:
            for number in keys[start : start + BATCH]:
                pipe.set(f"key-{number}", f"{number:{fill}>{asked.bytes}}")
            pipe.execute()


@contextmanager
def _bytes_read() -> Iterator[list[int]]:
    """Yield the sizes of all that is received of agents meanwhile."""
    usual, sizes = blocking.receive, list[int]()

    def counted(*given: Any) -> bytes:
        data = usual(*given)
        sizes.append(len(data))
        return data

    with patch("quorate_spark.reading.agent_link.receive", counted):
        yield sizes


def _plain_write(target: Target, manifest: Manifest, folder: Path) -> Callable[[], None]:
    """Write the same rows, from Python objects in memory, to as many files."""
    parts = [list(read_part(target, part, None)) for part in manifest.partitions]
    names = ("key", "value", "counter", "term", "expires_at")

    def write() -> None:
        for number, rows in enumerate(parts):
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            table = pa.Table.from_arrays(columns, names=names)
            pq.write_table(table, folder / f"plain-{number}.parquet", compression="zstd")

    return write


def _seconds(work: Callable[[], object]) -> float:
    return _measured(work)[0]


def _measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that it takes, and the processor time of this process."""
    started, used = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - started, time.process_time() - used


if __name__ == "__main__":
    main()
