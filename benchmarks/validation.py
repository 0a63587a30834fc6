"""Measure level rows of a validation, beside Spark's own scan and group-by of the same rows.

    PYTHONPATH=core:operator:node_agent:spark:tests python benchmarks/validation.py --keys 400000
    … benchmarks/validation.py --clients 400 --limit 8

With --clients it measures instead what clients notice of level rows, with a limit for each agent
and without one: so many commands a second are sent at fixed moments, SET and GET by turns, and what
one takes counts from when it was due.

Three agents, three copies, all on this machine; without --clients nothing is written meanwhile.  A
row is one of one copy.  The goals: 200,000 rows/s, at least 0.3 of what Spark reads and groups from
a Parquet file of the same rows, and memory of the workers that does not grow with a partition.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from figures.machine import moment
from loads.drivers import median, percentile
from sections.rolling_restart import OpenLoop

from quorate.facts.read_limit import MIB
from quorate_cluster.cluster import Cluster
from quorate_spark.comparing.compare_counters import Settled
from quorate_spark.comparing.compare_rows import Baseline
from quorate_spark.passes.scan_rows import ScannedPartition, SparkRowScan
from quorate_spark.passes.spark_session import own_spark
from quorate_spark.reading.read_columns import read_columns
from quorate_spark.reading.settle import ZoneCopies, settle
from quorate_spark.settings import Settings
from quorate_spark.validate import baseline_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL_ROWS = 200_000
GOAL_SHARE = 0.3
BATCH = 1000
RUNS = 3


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=400_000)
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--storage", default="Persistent", choices=("InMemory", "Persistent"))
    parser.add_argument("--clients", type=int, default=0, help="commands per second of clients")
    parser.add_argument("--limit", type=int, default=8, help="MiB per second of each agent")
    parser.add_argument("--seconds", type=float, default=10, help="of each part with clients")
    parser.add_argument("--quick", action="store_true", help="100,000 keys")
    asked = parser.parse_args()
    if asked.quick:
        asked.keys = 100_000
    with Cluster(agents=3) as cluster, tempfile.TemporaryDirectory() as folder:
        copies = _filled(asked, cluster)
        _, judgements = settle(copies, Settings())
        baselines = {p: baseline_of(p, s) for p, s in judgements.items() if isinstance(s, Settled)}
        work = Path(folder) / "spark"
        work.mkdir()
        if asked.clients:
            _measure_clients(asked, cluster, copies, baselines, work)
            return
        file = Path(folder) / "rows.parquet"
        rows = _write_rows(copies, file)
        with own_spark(work) as session:
            _measure(session, copies, baselines, file, rows)


def _filled(asked: argparse.Namespace, cluster: Cluster) -> ZoneCopies:
    cluster.apply_zone("z", partitions=asked.partitions, storage=asked.storage)
    client: Any = cluster.client("z")
    for start in range(0, asked.keys, BATCH):
        with client.pipeline() as pipe:
            for number in range(start, min(start + BATCH, asked.keys)):
                pipe.set(f"key-{number}", f"{number:0{asked.bytes}}")
            pipe.execute()
    agents = tuple(agent.peer_address for agent in cluster.agents.values())
    return ZoneCopies("z", agents, cluster.access, asked.partitions, 3)


def _write_rows(copies: ZoneCopies, file: Path) -> int:
    """Write all rows of all copies into one Parquet file; return how many there are."""
    schema = pa.schema(
        [
            ("partition", pa.int32()), ("node", pa.string()), ("key", pa.binary()),
            ("counter", pa.int64()), ("term", pa.int64()), ("expires_at", pa.int64()),
            ("value", pa.binary()),
        ]
    )  # fmt: skip
    settings, count = Settings(), 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for partition, owned in copies.read(settings).owned.items():
            for copy in owned:
                for rows in read_columns(copy, copies.zone, copies.cluster, settings):
                    count += len(rows)
                    batch = rows.to_batch()
                    columns = {
                        "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(rows)),
                        "node": pa.repeat(pa.scalar(copy.node), len(rows)),
                        **dict(zip(batch.schema.names, batch.columns, strict=True)),
                    }
                    writer.write_batch(pa.RecordBatch.from_pydict(columns, schema))
    return count


def _measure(
    session: "SparkSession",
    copies: ZoneCopies,
    baselines: dict[int, Baseline],
    file: Path,
    rows: int,
) -> None:
    scan = SparkRowScan(session, copies.zone, copies.agents, copies.cluster, Settings())

    def compare() -> None:
        for partition, found in scan(baselines).items():
            if found.problem or found.tally.differing or found.tally.unsettled:
                raise SystemExit(f"partition {partition}: {found}")

    def group() -> None:
        from pyspark.sql import functions as f

        columns = [f.struct("counter", "term", "expires_at", "value")]
        grouped = session.read.parquet(str(file)).groupBy("partition", "key")
        of_each = grouped.agg(f.count("*"), *map(f.min, columns), *map(f.max, columns))
        of_each.write.format("noop").mode("overwrite").save()

    first = _seconds(compare)
    _seconds(group)
    took, peer = zip(*((_seconds(compare), _seconds(group)) for _ in range(RUNS)), strict=True)
    mine, other = min(took), min(peer)
    print(f"{rows:,} rows of {len(baselines)} partitions")
    print(f"{'first pass of a session':34} {first:7.2f} s {rows / first:12,.0f} rows/s")
    print(f"{'later passes':34} {mine:7.2f} s {rows / mine:12,.0f} rows/s")
    print(f"{'Spark: Parquet, group by key':34} {other:7.2f} s {rows / other:12,.0f} rows/s")
    print(f"share {other / mine:.2f}; at its peak a worker had {max(_worker_peaks()):.0f} MiB")
    met = rows / mine >= GOAL_ROWS and other / mine >= GOAL_SHARE
    print(f"goals ({GOAL_ROWS:,} rows/s, {GOAL_SHARE} of Spark): {'met' if met else 'not met'}")


def _measure_clients(
    asked: argparse.Namespace,
    cluster: Cluster,
    copies: ZoneCopies,
    baselines: dict[int, Baseline],
    work: Path,
) -> None:
    """Measure what clients notice alone, beside level rows, and beside them with a limit."""
    limited = Settings(max_mib_per_second_per_agent=asked.limit)
    sides = {"alone": None, "level rows": Settings(), f"… {asked.limit} MiB/s": limited}
    size = sum(each.state.bytes for owned in copies.read(limited).owned.values() for each in owned)
    print(f"{moment()}  {asked.keys:,} keys of {asked.bytes} bytes, {size >> 20} MiB of copies")
    clients = OpenLoop(cluster, "lean", asked.clients)
    os.nice(10)  # elsewhere Spark has a machine of its own
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    passes = dict.fromkeys(sides, 0.0)
    with own_spark(work) as session:
        scans = {
            name: SparkRowScan(session, copies.zone, copies.agents, copies.cluster, settings)
            for name, settings in sides.items()
            if settings is not None
        }
        for scan in scans.values():
            _check(scan(baselines))
        for _ in range(RUNS):
            for name in sides:
                began = time.monotonic()
                while time.monotonic() < began + asked.seconds:
                    if name in scans:
                        _check(scans[name](baselines))
                        passes[name] += 1
                    else:
                        time.sleep(asked.seconds)
                spans[name].append((began, time.monotonic()))
    took, failed = clients.stop()
    if failed:
        raise SystemExit(f"{len(failed)} commands failed: {failed[0]}")
    print("| beside | commands | p50 | p99 | p99 of each round | p99 added | read of an agent |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    of_alone = 0.0
    for name, during in spans.items():
        rounds = [[ms for due, ms in took if first <= due < last] for first, last in during]
        p50, p99 = (median([percentile(each, which) for each in rounds]) for which in (50, 99))
        each_p99 = " / ".join(f"{percentile(each, 99):.1f}" for each in rounds)
        of_alone = of_alone or p99
        seconds = sum(last - first for first, last in during)
        read = passes[name] * size / len(cluster.agents) / seconds / MIB
        print(
            f"| {name} | {sum(map(len, rounds)):,} | {p50:.1f} ms | {p99:.1f} ms | {each_p99} ms"
            f" | {p99 - of_alone:+.1f} ms | {read:.1f} MiB/s |"
        )


def _check(scanned: dict[int, ScannedPartition]) -> None:
    """End the program if a partition was not read whole, or differs."""
    for partition, found in scanned.items():
        if found.problem or found.tally.differing:
            raise SystemExit(f"partition {partition}: {found}")


def _worker_peaks() -> Iterator[float]:
    """Yield the peak memory (MiB) of each Python worker below this process."""
    left = [os.getpid()]
    while left:
        pid = left.pop()
        try:
            children = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
            command = Path(f"/proc/{pid}/cmdline").read_text()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # it has ended
            continue
        left += [int(child) for text in children for child in text.split()]
        if "pyspark.daemon" in command:
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            yield int(peak.split()[1]) / 1024


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
