"""Finds the rows that make the digests of a partition's copies differ, reading as few as possible.

1. The agents add up the rows of their copies by 256 ranges of the keys' hash (buckets): rows with
   counter <= c, which every copy has reached.  Buckets that differ are asked for again: a key
   written between two copies' answers makes its bucket differ once, a damaged row every time.
2. The rows of the buckets that differed each time are read on every copy, and compared as in level
   rows (`compare_rows`): rows above c are unsettled.

A row whose counter was never given out may be above every c.  So if no bucket differs up to c, all
rows are added up.
"""

import heapq
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from quorate_spark.comparing.compare_rows import Baseline, PartitionTally, RowSeen
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Cluster
from quorate_spark.reading.read_copies import check_process, open_link, read_rows
from quorate_spark.reading.read_digests import UPTO_ALL, Shares, read_shares
from quorate_spark.reading.recheck import row_seen
from quorate_spark.settings import Settings

ROUNDS_MAX = 4
"""How often buckets that differ are asked for."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The result for the rows of one partition.

    `tally`: of the rows read; `rows_read`: over all copies; `rows_unread`: rows of one copy in
    buckets that were alike.
    """

    tally: PartitionTally
    buckets: tuple[int, ...]
    rows_read: int
    rows_unread: int


def descend(
    copies: tuple[CopySeen, ...], upto: int, zone: str, cluster: Cluster, settings: Settings
) -> Descent:
    """Find the differing rows; every copy has reached counter `upto`.

    Raises Unreadable if a copy cannot be read.
    """
    partition = copies[0].state.partition
    shares, buckets = _differing_buckets(copies, upto, zone, cluster, settings)
    settled_upto = min(share.lwm for share in shares)
    tally = PartitionTally(Baseline(partition, tuple(copy.node for copy in copies), settled_upto))
    alike = [rows for bucket, (rows, _) in shares[0].by_bucket.items() if bucket not in buckets]
    rows_read = 0
    if buckets:
        with ExitStack() as stack:
            streams = [
                stack.enter_context(closing(_rows(copy, buckets, zone, cluster, settings)))
                for copy in copies
            ]
            rising = heapq.merge(*streams, key=itemgetter(0))
            for key, found in groupby(rising, key=itemgetter(0)):
                rows = [row for _, row in found]
                rows_read += len(rows)
                tally.count(key, rows, settings.rechecks_max)
    return Descent(tally, buckets, rows_read, sum(alike))


def _rows(
    copy: CopySeen, buckets: tuple[int, ...], zone: str, cluster: Cluster, settings: Settings
) -> Generator[tuple[bytes, RowSeen]]:
    for chunk in read_rows(copy, zone, cluster, settings, buckets):
        for row in chunk:
            yield row[0], row_seen(copy.node, row)


def _differing_buckets(
    copies: Sequence[CopySeen], upto: int, zone: str, cluster: Cluster, settings: Settings
) -> tuple[list[Shares], tuple[int, ...]]:
    """Return the last answers, and the buckets that differed in each round."""
    partition = copies[0].state.partition
    with ExitStack() as stack:
        links = []
        for copy in copies:
            link = stack.enter_context(open_link(copy.address, cluster, settings))
            check_process(link, copy)
            links.append(link)

        def ask(counter: int) -> list[Shares]:
            return [read_shares(link, zone, partition, counter) for link in links]

        left: list[int] = []
        shares: list[Shares] = []
        for number in range(ROUNDS_MAX):
            shares = ask(upto)
            found = _unlike(shares)
            left = found if number == 0 else [bucket for bucket in left if bucket in found]
            if len(left) <= 1 or all(share.lwm == upto for share in shares):
                break
            upto = min(share.lwm for share in shares)
        if left:
            return shares, tuple(left)
        for number in range(ROUNDS_MAX):
            shares = ask(UPTO_ALL)
            found = _unlike(shares)
            left = found if number == 0 else [bucket for bucket in left if bucket in found]
            if len(left) <= 1:
                break
        return shares, tuple(left)


def _unlike(shares: Sequence[Shares]) -> list[int]:
    buckets = sorted({bucket for share in shares for bucket in share.by_bucket})
    return [
        bucket for bucket in buckets if len({share.by_bucket.get(bucket) for share in shares}) > 1
    ]
