"""Positions of a stream of updates in each partition, and the spans that a micro-batch reads.

A position is JSON in Spark's checkpoint: the `counter` and `term` of the last update that was told.

- Counter -1: nothing was told yet, and all rows are to be told first.
- With `anew`: the micro-batch that ends here tells all rows of the partition, whatever it started
  from.  The one after it starts from `counter`, as from any other position.

Versions that do not know `anew` leave it out of the positions that they write.
"""

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import InputPartition

from quorate_spark.copies import CopySeen

Position = dict[str, int]
Offset = dict[str, Position]
"""By the number of the partition."""

ANEW = "anew"


class UpdateSpan(InputPartition):
    """The updates of one partition above the position `start`, up to `end`, for one task.

    `is_anew`: all its rows instead, as they were at `end` or later.
    """

    def __init__(self, partition: int, start: Position, end: Position, *, is_anew: bool) -> None:
        super().__init__((partition, start["counter"], end["counter"]))
        self.partition = partition
        self.start = start
        self.end = end
        self.is_anew = is_anew

    @property
    def upto(self) -> int:
        """The counter of its last update."""
        return self.end["counter"]


def untold() -> Position:
    """Return the position of a partition of which nothing was told."""
    return {"counter": -1, "term": 0}


def is_untold(position: Position) -> bool:
    """Return whether all rows of a partition are to be told before its updates."""
    return position["counter"] < 0


def position_of(copy: CopySeen, *, is_anew: bool) -> Position:
    """Return the position of the last update of which the copy knows that a quorum has it."""
    found = position_at(copy, copy.state.majority)
    return {**found, ANEW: True} if is_anew else found


def position_at(copy: CopySeen, counter: int) -> Position:
    """Return the position of an update in the history of a copy."""
    lineage = copy.state.lineage
    term = lineage.term_at(counter)
    return {"counter": counter, "term": lineage.base_term if term is None else term}


def planned(start: Offset, end: Offset) -> list[UpdateSpan]:
    """Return one span for each partition of which there is something to read.

    It depends on these offsets only: Spark plans a micro-batch again after a crash.  `start` may
    differ then in a query's first micro-batch, because Spark does not keep it.
    """
    found: list[UpdateSpan] = []
    for name, before in start.items():
        after = end[name]
        is_first = is_untold(before) and not is_untold(after)
        is_anew = is_first or (ANEW in after and after != before)
        if is_anew or before["counter"] < after["counter"]:
            found.append(UpdateSpan(int(name), before, after, is_anew=is_anew))
    return found


def readable(copies: Sequence[CopySeen]) -> list[CopySeen]:
    """Return the copies of owners that have adopted their term: what a quorum has is final."""
    return [copy for copy in copies if copy.state.adopted and copy.state.replica_index >= 0]


def has(copy: CopySeen, position: Position) -> bool:
    """Return whether the update of a position is in the copy's history."""
    state, counter = copy.state, position["counter"]
    return counter <= state.lwm and not state.lineage.is_divergent(position["term"], counter)


def fit_for_updates(copies: Sequence[CopySeen], span: UpdateSpan) -> list[CopySeen]:
    """Return the copies that have the whole span, backups first."""
    return _backups_first(
        copy
        for copy in readable(copies)
        if copy.state.majority >= span.upto and has(copy, span.start)
    )


def fit_for_rows(copies: Sequence[CopySeen], span: UpdateSpan) -> list[CopySeen]:
    """Return the copies in whose rows all updates up to the span's end are, backups first."""
    return _backups_first(
        copy
        for copy in readable(copies)
        if copy.state.majority >= span.upto and has(copy, span.end)
    )


def is_history_lost(copies: Sequence[CopySeen], position: Position) -> bool:
    """Return whether an update that a quorum had is in no copy's history; `copies`: of all owners.

    While the primary changes, copies that have the update may not have adopted its term.
    """
    return bool(readable(copies)) and not any(has(copy, position) for copy in copies)


def is_undone(copies: Sequence[CopySeen], position: Position) -> bool:
    """Return whether an update that a quorum had is in no history; `copies`: of all owners.

    Of a copy that lags behind but whose lineage agrees, the history may still get to the update.
    """
    counter, term = position["counter"], position["term"]
    return bool(readable(copies)) and all(
        copy.state.lineage.is_divergent(term, counter) for copy in copies
    )


def _backups_first(copies: Iterable[CopySeen]) -> list[CopySeen]:
    return sorted(copies, key=lambda copy: -copy.state.replica_index)
