"""A stream of the updates of a zone: each key that is written, in the order of its partition.

An offset has, for each partition of the zone, the counter of the last update that was told, and its
term (positions.py).  Only updates that a quorum of the copies has are read: none of them can be
undone.

1. The driver asks all copies how far a quorum has their updates.  The furthest one is the end of
   the micro-batch.
2. One task per partition reads the updates from the log of a copy that has adopted its term and has
   all of them, a backup where there is one.  It goes on with another copy where one fails.
3. Agents keep a part of their logs only.  If no log reaches back to the offset any more, the query
   fails with LogLost.  If the update of the offset is not in the history any more, because data was
   reset, it fails with HistoryLost.

With `onLogLost` = `snapshot` the partition is told anew instead: a marker row, and then all rows.
With `startingOffsets` = `snapshot` each partition is told so in the first micro-batch.  All updates
up to the end of the micro-batch are in the rows, and so may be later ones.  The updates above that
end are told next, so a key that is deleted while its partition is read, or between two attempts, is
told as deleted.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from quorate.facts.keyspace import is_reserved
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.tools import AskUpdates, UpdatesTold
from quorate_spark.comparing.compare_rows import digest
from quorate_spark.copies import CopySeen, Reading, absence
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.read_copies import copies_of, open_link, read_answering
from quorate_spark.reading.read_final_rows import read_final_rows
from quorate_spark.reading.read_updates import LogTooShort, read_updates
from quorate_spark.row_columns import are_reserved
from quorate_spark.sources.columns import ANEW, UPDATE, batch_of, batch_of_rows, columns_of
from quorate_spark.sources.options import (
    Options,
    beginning,
    choice,
    may_tell_anew,
    number,
    on_log_lost,
    partition_numbers,
    source_of,
)
from quorate_spark.sources.positions import (
    Offset,
    Position,
    UpdateSpan,
    fit_for_rows,
    fit_for_updates,
    has,
    is_history_lost,
    is_undone,
    is_untold,
    planned,
    position_at,
    position_of,
    readable,
    untold,
)

WAIT_S = 60.0
"""A task waits so long for a copy that it can read."""
POLL_S = 0.2

_ADVICE = (
    "start the query with onLogLost = snapshot, which tells the partition anew, or with a new"
    " checkpoint and startingOffsets = snapshot"
)


class LogLost(Unreadable):
    """No copy's log reaches back to the offset."""


class HistoryLost(Unreadable):
    """The update of an offset is not in the partition's history any more."""


class UpdateReader(DataSourceStreamReader):
    """Finds how far updates go, and reads those of a partition.  Pickled to the workers."""

    def __init__(self, options: Options) -> None:
        self._begins = beginning(options)
        self._goes_on = on_log_lost(options) == "snapshot"
        self._may_tell_anew = may_tell_anew(options)
        self._source = source_of(options)
        self._only = partition_numbers(options)
        self._digests = choice(options, "values", ("full", "sha256")) == "sha256"
        self._wait_s = number(options, "wait_s", WAIT_S)
        for name in ("columns", "prefix", "slots"):
            if options.get(name):
                raise Unreadable(
                    f"option {name} is {options[name]!r}: a stream has all updates; leave the"
                    " option out, and use where or select"
                )
        if options.get("problems", "raise") != "raise":
            raise Unreadable(
                f"option problems is {options['problems']!r}: a stream has no rows for problems,"
                " it fails; leave the option out"
            )
        self._columns = columns_of(options)

    def initialOffset(self) -> Offset:  # noqa: N802  # as Spark calls it
        """Return where a query without a checkpoint begins.  Raises Unreadable."""
        reading = self._read()
        problem = absence(reading, self._source.zone, 0, 0)
        if problem:
            raise Unreadable(problem)
        found: Offset = {}
        for partition, copies in reading.owned.items():
            if self._only is not None and partition not in self._only:
                continue
            if self._begins == "snapshot":
                found[str(partition)] = untold()
                continue
            legible = readable(copies)
            best = self._furthest(partition, legible)
            if best is None:
                raise Unreadable(f"partition {partition} has no copy that can be read now")
            counter = best.state.majority
            if self._begins == "earliest":
                counter = min(counter, *(self._log_from(copy) for copy in legible))
            found[str(partition)] = position_at(best, counter)
        return found

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far updates go.  Raises Unreadable."""
        reading = self._read()
        # Only then the history of all copies is known: one that is cut off may have an older one.
        have_all_answered = len(reading.nodes) == len(self._source.agents)
        found: Offset = {}
        for name, position in start.items():
            owned = reading.owned.get(int(name), ())
            copies = readable(owned)
            following = [copy for copy in copies if has(copy, position)]
            is_lost = have_all_answered and is_history_lost(owned, position)
            if is_lost and not self._goes_on:
                raise self._history_lost(copies[0], position, "which the query has read")
            best = self._furthest(int(name), copies if is_lost else following)
            is_ahead = best is not None and best.state.majority > position["counter"]
            if best is not None and (is_ahead or is_lost):
                found[name] = position_of(best, is_anew=is_lost or is_untold(position))
            else:
                found[name] = position
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[UpdateSpan]:
        """Return one span for each partition that has new updates.  Raises Unreadable."""
        spans = planned(start, end)
        anew = [str(span.partition) for span in spans if span.is_anew]
        if anew and not self._may_tell_anew:
            raise Unreadable(
                f"zone {self._source.zone}: this micro-batch was planned to tell all rows of"
                f" partition {', '.join(anew[:10])}{', …' if len(anew) > 10 else ''}: start the"
                " query with the option that it had, startingOffsets = snapshot or onLogLost ="
                " snapshot"
            )
        return spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the updates of a span, or all rows of its partition.

        Raises LogLost or HistoryLost, unless the partition is to be told anew then; Unreadable if
        no copy can be read.
        """
        assert isinstance(partition, UpdateSpan)
        span = partition
        if span.is_anew:
            yield from self._rows(span)
            return
        try:
            yield from self._updates(span)
        except (LogLost, HistoryLost):
            if not self._goes_on:
                raise
            yield from self._rows(span)

    def commit(self, end: Offset) -> None:
        """Nothing is kept for a query, so there is nothing to give up."""

    def _updates(self, span: UpdateSpan) -> Iterator[pa.RecordBatch]:
        source, after = self._source, span.start["counter"]
        access = source.zone, source.cluster, source.settings
        deadline = time.monotonic() + self._wait_s
        while after < span.upto:
            problem, too_short = "no copy has all of it", dict[str, LogTooShort]()
            owned, silent = self._copies_of(span.partition)
            for copy in fit_for_updates(owned, span):
                try:
                    for updates, reached in read_updates(copy, after, span.upto, *access):
                        yield self._update_batch(copy, updates)
                        after, deadline = reached, time.monotonic() + self._wait_s
                    break
                except LogTooShort as error:
                    too_short[copy.node], problem = error, str(error)
                except Unreadable as error:
                    problem = str(error)
            else:
                is_late = time.monotonic() > deadline
                if (self._goes_on or is_late) and not silent and is_undone(owned, span.end):
                    why = "up to which this micro-batch goes"
                    raise self._history_lost(readable(owned)[0], span.end, why)
                # A copy that is away, or that cannot be read yet, may have what these have not.
                is_lost = bool(too_short) and (not silent or self._goes_on)
                is_known = not silent and len(too_short) == len(owned)
                if is_lost and (is_known or is_late):
                    raise self._log_lost(span, after, too_short)
                self._wait(span, f"updates {after + 1} to {span.upto}", deadline, problem, silent)

    def _rows(self, span: UpdateSpan) -> Iterator[pa.RecordBatch]:
        """Yield the marker, and then all rows of the partition."""
        source, first, is_marked = self._source, b"", False
        access = source.zone, source.cluster, source.settings
        deadline = time.monotonic() + self._wait_s
        while True:
            problem = "no copy has all updates up to there"
            owned, silent = self._copies_of(span.partition)
            fit = fit_for_rows(owned, span)
            if not fit and not silent and is_undone(owned, span.end):
                # They may have fewer updates.  The next micro-batch tells all rows again, because
                # their term at this counter is not the one in the offset, however far they go.
                # Only a query that stands still until they have forgotten that term would miss it.
                fit = readable(owned)
            for copy in fit:
                try:
                    for rows in read_final_rows(copy, first, *access, self._wait_s):
                        if not is_marked:
                            yield self._marker(copy, span.end)
                            is_marked = True
                        if len(rows):
                            live = rows.where(~(rows.tombstones | are_reserved(rows)))
                            yield batch_of_rows(self._columns, copy, live, digests=self._digests)
                            first = rows.key(-1) + b"\0"
                        deadline = time.monotonic() + self._wait_s
                except Unreadable as error:
                    problem = str(error)
                else:
                    return
            self._wait(span, f"all rows at update {span.upto}", deadline, problem, silent)

    def _wait(
        self, span: UpdateSpan, wanted: str, deadline: float, problem: str, silent: Sequence[str]
    ) -> None:
        """Pause before copies are asked again.  Raises Unreadable if it is too late for that."""
        if time.monotonic() > deadline:
            raise Unreadable(
                f"zone {self._source.zone}, partition {span.partition}: {wanted} could not be read"
                f" within {self._wait_s:g} s: {'; '.join([problem, *silent])}"
            )
        time.sleep(POLL_S)

    def _read(self) -> Reading:
        source = self._source
        return read_answering(source.zone, source.agents, source.cluster, source.settings)

    def _furthest(self, partition: int, copies: Sequence[CopySeen]) -> CopySeen | None:
        """Return the copy that knows of the last update that a quorum has; None: no copy does."""
        for copy in copies:
            if copy.state.majority < 0:
                raise Unreadable(
                    f"partition {partition}: agent {copy.node} is of an earlier version, which"
                    " does not say what a quorum has: upgrade the agents, then start the query"
                )
        return max(copies, key=lambda copy: copy.state.majority, default=None)

    def _history_lost(self, copy: CopySeen, position: Position, which: str) -> HistoryLost:
        return HistoryLost(
            f"zone {self._source.zone}, partition {copy.state.partition}: update"
            f" {position['counter']} of term {position['term']}, {which}, is in the"
            f" history of no copy ({copy.node} has LWM {copy.state.lwm}).  Its data was reset, or"
            f" the zone was deleted and made again: {_ADVICE}"
        )

    def _copies_of(self, partition: int) -> tuple[list[CopySeen], list[str]]:
        """Return the partition's copies at owners, and why agents did not answer."""
        source, found, silent = self._source, list[CopySeen](), list[str]()
        for address in source.agents:
            try:
                with open_link(address, source.cluster, source.settings) as link:
                    found += copies_of(link, address, source.zone, partition)
            except Unreadable as error:
                silent.append(str(error))
        owned = [
            copy
            for copy in found
            if copy.state.partition == partition and copy.state.replica_index >= 0
        ]
        return owned, silent

    def _log_from(self, copy: CopySeen) -> int:
        """Return the counter above which the copy's log has everything."""
        source = self._source
        question = AskUpdates(source.zone, copy.state.partition, 0, 0)
        with open_link(copy.address, source.cluster, source.settings) as link:
            return link.ask(question, UpdatesTold).reaches_from

    def _log_lost(
        self, span: UpdateSpan, after: int, too_short: Mapping[str, LogTooShort]
    ) -> LogLost:
        oldest = min(error.oldest for error in too_short.values())
        asked = ", ".join(too_short)
        return LogLost(
            f"zone {self._source.zone}, partition {span.partition}: update {after + 1} is asked"
            f" for, and the oldest that a log still has is {oldest} (asked: {asked})."
            f"  The query was behind for longer than agents keep their logs: {_ADVICE}"
        )

    def _update_batch(self, copy: CopySeen, updates: Sequence[Update]) -> pa.RecordBatch:
        rows = [
            (key, value, update.counter, update.term, expires_at)
            for update in updates
            for key, value, expires_at in update.operations
            if key is None or not is_reserved(key)
        ]
        keys, values, counters, terms, expiries = zip(*rows, strict=True) if rows else ((),) * 5
        tombstones = [value is None for value in values]
        if self._digests:
            values = tuple(None if value is None else digest(value) for value in values)
        count, state = len(rows), copy.state
        where = ([state.replica_index] * count, [copy.node] * count, [state.partition] * count)
        every = (keys, values, counters, terms, expiries, *where, tombstones, [UPDATE] * count)
        return batch_of(self._columns, every)

    def _marker(self, copy: CopySeen, end: Position) -> pa.RecordBatch:
        """Return the row that tells: forget what is not told again of this partition."""
        state = copy.state
        row = (None, None, end["counter"], end["term"], 0)
        where = (state.replica_index, copy.node, state.partition)
        return batch_of(self._columns, [[value] for value in (*row, *where, True, ANEW)])
