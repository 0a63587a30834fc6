"""Reads the rows of a copy whose updates a quorum has: none is undone later, but by a reset.

A copy's rows may have updates that no quorum has yet, also above its LWM, and a new primary may
undo these.  So each page waits until a quorum has everything that is in the page, and everything up
to the LWM that the copy had when the page was read.  Pages are read while updates go on: rows of
later pages may be newer than those of earlier ones.
"""

import time
from collections.abc import Iterator

from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import AgentLink, Cluster, Unreadable
from quorate_spark.reading.read_columns import KeyRange, pages_from
from quorate_spark.reading.read_copies import check_process, check_same_copy, open_link
from quorate_spark.row_columns import RowColumns
from quorate_spark.settings import Settings

POLL_S = 0.01


def read_final_rows(
    copy: CopySeen,
    first: bytes,
    zone: str,
    cluster: Cluster,
    settings: Settings,
    wait_s: float,
) -> Iterator[RowColumns]:
    """Yield the copy's rows from key `first` on, page by page; pages may be empty.

    All updates up to the LWM that `copy` has are in them.  After each page the copy was still the
    same.  Raises Unreadable, also if no quorum has a page within `wait_s`; the pages before hold.
    """
    with open_link(copy.address, cluster, settings) as link:
        check_process(link, copy)
        for rows, lwm in pages_from(link, copy, zone, settings, (KeyRange(first),)):
            upto = max(lwm, int(rows.counters.max(initial=0)))
            _await_quorum(link, copy, zone, upto, wait_s)
            yield rows


def _await_quorum(link: AgentLink, copy: CopySeen, zone: str, upto: int, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while check_same_copy(link, copy, zone).state.majority < upto:
        if time.monotonic() > deadline:
            raise Unreadable(
                f"partition {copy.state.partition}: {copy.node} does not know after {wait_s:g} s"
                f" that a quorum has update {upto}"
            )
        time.sleep(POLL_S)
