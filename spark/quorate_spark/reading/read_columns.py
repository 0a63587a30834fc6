"""Reads the rows of a copy as columns, all of them or those of some ranges of keys.

A reading is whole, or it raises Unreadable, as in `read_copies`.  An agent of an earlier version
does not know columns: it is asked for rows.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from quorate.protocol.messages.tools import AskColumns, CopyColumns
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import AgentLink, Cluster, Unreadable
from quorate_spark.reading.read_copies import (
    check_place,
    check_process,
    check_same_copy,
    key_before,
    open_link,
    rows_from,
)
from quorate_spark.row_columns import RowColumns
from quorate_spark.settings import Settings


class KeyRange(NamedTuple):
    """Keys with first <= key < before; `before` None: to the end of the keys."""

    first: bytes = b""
    before: bytes | None = None


EVERY_KEY = (KeyRange(),)


def read_columns(
    copy: CopySeen,
    zone: str,
    cluster: Cluster,
    settings: Settings,
    ranges: tuple[KeyRange, ...] = EVERY_KEY,
    *,
    values: bool = True,
) -> Generator[RowColumns]:
    """Yield the copy's rows in the order of `ranges` and of keys, chunk by chunk; none is empty.

    Raises Unreadable unless all of them were read.
    """
    with open_link(copy.address, cluster, settings) as link:
        check_process(link, copy)
        yield from columns_from(link, copy, zone, settings, ranges, values=values)


def columns_from(
    link: AgentLink,
    copy: CopySeen,
    zone: str,
    settings: Settings,
    ranges: tuple[KeyRange, ...] = EVERY_KEY,
    *,
    values: bool = True,
) -> Iterator[RowColumns]:
    """Yield the copy's rows as `read_columns` does, over a link to the process that has it."""
    for found, _ in pages_from(link, copy, zone, settings, ranges, values=values):
        if len(found):
            yield found
    check_same_copy(link, copy, zone)


def pages_from(
    link: AgentLink,
    copy: CopySeen,
    zone: str,
    settings: Settings,
    ranges: tuple[KeyRange, ...] = EVERY_KEY,
    *,
    values: bool = True,
) -> Iterator[tuple[RowColumns, int]]:
    """Yield each page of the copy's rows, and the LWM that the copy had then; pages may be empty.

    The caller checks that it is still the same copy.  Raises Unreadable.
    """
    lwm = copy.state.lwm
    asked = _asked if link.knows(AskColumns) else _asked_for_rows
    for wanted in ranges:
        for found, reached in asked(link, copy, zone, settings, wanted, lwm, values):
            lwm = reached
            yield found, reached


def _asked(
    link: AgentLink,
    copy: CopySeen,
    zone: str,
    settings: Settings,
    wanted: KeyRange,
    lwm: int,
    values: bool,
) -> Iterator[tuple[RowColumns, int]]:
    partition = copy.state.partition
    first: bytes | None = wanted.first
    while first is not None:
        question = AskColumns(zone, partition, first, settings.chunk_bytes, wanted.before, values)
        told = link.ask(question, CopyColumns)
        check_place(link, copy, zone, lwm, told)
        lwm = told.lwm
        yield _checked(link, told, KeyRange(first, wanted.before), values), lwm
        first = told.next


def _checked(link: AgentLink, told: CopyColumns, asked: KeyRange, values: bool) -> RowColumns:
    """Return the rows, whose keys rise and were asked for."""
    try:
        found = RowColumns.of_told(told, values=values)
    except ValueError as error:
        raise Unreadable(
            f"partition {told.partition}: {link.name} answered columns that do not fit together:"
            f" {error}"
        ) from error
    highest = found.key(-1) if len(found) else None
    is_within = highest is None or (
        found.key(0) >= asked.first and (asked.before is None or highest < asked.before)
    )
    if not found.keys_rise or not is_within:
        raise Unreadable(
            f"partition {told.partition}: {link.name} answered a key after one that is not below"
            " it, or one that was not asked for: rows must come in key order"
        )
    if told.next is not None and told.next <= (asked.first if highest is None else highest):
        raise Unreadable(
            f"partition {told.partition}: {link.name} answered a next position that is not beyond"
            " the last: it must rise"
        )
    return found


def _asked_for_rows(
    link: AgentLink,
    copy: CopySeen,
    zone: str,
    settings: Settings,
    wanted: KeyRange,
    lwm: int,
    values: bool,
) -> Iterator[tuple[RowColumns, int]]:
    first, before = wanted
    for rows, reached in rows_from(link, copy, zone, settings, key_before(first), lwm):
        found = [row for row in rows if first <= row[0] and (before is None or row[0] < before)]
        yield RowColumns.of_rows(found, values=values), reached
        if before is not None and rows and rows[-1][0] >= before:
            return
