"""A stream of the updates of a zone: each key that is written, in the order of its partition.

An offset has, for each partition of the zone, the counter of the last update that was read, and its
term.  Only updates that a quorum of the copies has are read: none of them can be undone.

1. The driver asks all copies how far a quorum has their updates.  The furthest one is the end of
   the micro-batch.
2. One task per partition reads the updates from the log of a copy that has adopted its term and has
   all of them, a backup where there is one.  It goes on with another copy where one fails.
3. Agents keep a part of their logs only.  If no log reaches back to the offset any more, the query
   fails with LogLost.  If the update of the offset is not in the history any more, because data was
   reset, it fails with HistoryLost.
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
from quorate_spark.reading.read_updates import LogTooShort, read_updates
from quorate_spark.sources.columns import batch_of
from quorate_spark.sources.options import Options, choice, number, partition_numbers, source_of

WAIT_S = 60.0
"""How long a task waits for a copy that it can read."""
POLL_S = 0.2

Position = dict[str, int]
"""`counter` and `term` of the last update that was read."""
Offset = dict[str, Position]
"""By the number of the partition."""


class LogLost(Unreadable):
    """No copy's log reaches back to the offset."""


class HistoryLost(Unreadable):
    """The update of an offset is not in the partition's history any more."""


class UpdateSpan(InputPartition):
    """Updates of one partition: those above the position `start`, up to counter `upto`."""

    def __init__(self, partition: int, start: Position, upto: int) -> None:
        super().__init__((partition, start["counter"], upto))
        self.partition = partition
        self.start = start
        self.upto = upto


class UpdateReader(DataSourceStreamReader):
    """Finds how far updates go, and reads those of a partition.  Pickled to the workers."""

    def __init__(self, options: Options) -> None:
        self._source = source_of(options)
        self._begins = choice(options, "startingoffsets", ("latest", "earliest"))
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
            readable = _readable(copies)
            best = self._furthest(partition, readable)
            if best is None:
                raise Unreadable(f"partition {partition} has no copy that can be read now")
            counter = best.state.majority
            if self._begins == "earliest":
                counter = min(counter, *(self._log_from(copy) for copy in readable))
            found[str(partition)] = _position(best, counter)
        return found

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far updates go.  Raises Unreadable."""
        reading = self._read()
        # Only then the history of all copies is known: one that is cut off may have an older one.
        have_all_answered = len(reading.nodes) == len(self._source.agents)
        found: Offset = {}
        for name, position in start.items():
            owned = reading.owned.get(int(name), ())
            copies = _readable(owned)
            following = [copy for copy in copies if _has(copy, position)]
            # While the primary changes, copies that have the update may not have adopted its term.
            is_lost = not any(_has(copy, position) for copy in owned)
            if copies and is_lost and have_all_answered:
                raise self._history_lost(copies[0], position)
            best = self._furthest(int(name), following)
            is_ahead = best is not None and best.state.majority > position["counter"]
            found[name] = _position(best, best.state.majority) if best and is_ahead else position
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[UpdateSpan]:
        """Return one span for each partition that has new updates."""
        return [
            UpdateSpan(int(name), position, end[name]["counter"])
            for name, position in start.items()
            if position["counter"] < end[name]["counter"]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the updates of a span.  Raises LogLost, or Unreadable if no copy can be read."""
        assert isinstance(partition, UpdateSpan)
        span = partition
        after = span.start["counter"]
        deadline = time.monotonic() + self._wait_s
        while after < span.upto:
            problem, too_short = "no copy has all of it", dict[str, LogTooShort]()
            owned, silent = self._copies_of(span.partition)
            for copy in _fit(owned, span):
                try:
                    for updates, reached in self._updates(copy, after, span.upto):
                        yield self._batch(copy, updates)
                        after = reached
                    break
                except LogTooShort as error:
                    too_short[copy.node], problem = error, str(error)
                except Unreadable as error:
                    problem = str(error)
            else:
                # A copy that is away, or that cannot be read yet, may have what these have not.
                is_lost = bool(too_short) and not silent
                if is_lost and (len(too_short) == len(owned) or time.monotonic() > deadline):
                    raise self._log_lost(span, after, too_short)
                if time.monotonic() > deadline:
                    raise Unreadable(
                        f"zone {self._source.zone}, partition {span.partition}: updates"
                        f" {after + 1} to {span.upto} could not be read within {self._wait_s:g} s:"
                        f" {'; '.join([problem, *silent])}"
                    )
                time.sleep(POLL_S)

    def commit(self, end: Offset) -> None:
        """Nothing is kept for a query, so there is nothing to give up."""

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

    def _history_lost(self, copy: CopySeen, start: Position) -> HistoryLost:
        return HistoryLost(
            f"zone {self._source.zone}, partition {copy.state.partition}: update"
            f" {start['counter']} of term {start['term']}, which the query has read, is in the"
            f" history of no copy ({copy.node} has LWM {copy.state.lwm}).  Its data was reset, or"
            " the zone was deleted and made again: read the zone with spark.read, and start the"
            " query with a new checkpoint"
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

    def _updates(self, copy: CopySeen, after: int, upto: int) -> Iterator[tuple[list[Update], int]]:
        source = self._source
        return read_updates(copy, after, upto, source.zone, source.cluster, source.settings)

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
            "  The query was behind for longer than agents keep their logs: read the zone with"
            " spark.read, and start the query with a new checkpoint"
        )

    def _batch(self, copy: CopySeen, updates: Sequence[Update]) -> pa.RecordBatch:
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
        return batch_of((keys, values, counters, terms, expiries, *where, tombstones))


def _readable(copies: Sequence[CopySeen]) -> list[CopySeen]:
    """Return the copies of owners that have adopted their term: what a quorum has is final."""
    return [copy for copy in copies if copy.state.adopted and copy.state.replica_index >= 0]


def _fit(copies: Sequence[CopySeen], span: UpdateSpan) -> list[CopySeen]:
    """Return the copies that have the whole span, backups first."""
    fit = [
        copy
        for copy in _readable(copies)
        if copy.state.majority >= span.upto and _has(copy, span.start)
    ]
    return sorted(fit, key=lambda copy: -copy.state.replica_index)


def _has(copy: CopySeen, position: Position) -> bool:
    """Return whether the update of a position is in the copy's history."""
    state, counter = copy.state, position["counter"]
    return counter <= state.lwm and not state.lineage.is_divergent(position["term"], counter)


def _position(copy: CopySeen, counter: int) -> Position:
    lineage = copy.state.lineage
    term = lineage.term_at(counter)
    return {"counter": counter, "term": lineage.base_term if term is None else term}
