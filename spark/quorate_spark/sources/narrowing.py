"""Narrows a read to ranges of keys, slots and copies.  Agents are asked for no more.

Options name them (`prefix`, `slots`, `partitions`), and filters of a query do, where Spark hands
them over.  Whatever is left out here fails a filter or an option.  What remains need not pass them
all: Spark applies its filters again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from quorate.facts.keyspace import (
    RESERVED,
    SLOT_COUNT,
    key_slot,
    partition_slots,
    slot_shift,
)
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.read_columns import EVERY_KEY, KeyRange
from quorate_spark.sources.options import Options, partition_numbers

Ranges = tuple[KeyRange, ...]
T = TypeVar("T")

RANGES_MAX = 1000
"""Of more ranges in one partition, a copy is read from the first to the last."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that a read needs; None: all of them.

    `ranges` rise and do not overlap.
    """

    ranges: Ranges = EVERY_KEY
    slots: frozenset[int] | None = None
    partitions: frozenset[int] | None = None
    replica_indexes: frozenset[int] | None = None
    nodes: frozenset[str] | None = None

    def narrowed(self, filters: Iterable[Filter]) -> "Wanted":
        """Return what is left when these filters hold, too; unknown ones are left out."""
        wanted = self
        for each in filters:
            match each:
                case EqualTo(("key",), bytes() | bytearray() as key):
                    wanted = wanted._within((only(bytes(key)),))
                case In(("key",), keys) if all(isinstance(key, bytes | bytearray) for key in keys):
                    found = sorted({bytes(key) for key in keys})
                    wanted = wanted._within(tuple(map(only, found)))
                case GreaterThan(("key",), bytes() | bytearray() as key):
                    wanted = wanted._within((KeyRange(bytes(key) + b"\0"),))
                case GreaterThanOrEqual(("key",), bytes() | bytearray() as key):
                    wanted = wanted._within((KeyRange(bytes(key)),))
                case LessThan(("key",), bytes() | bytearray() as key):
                    wanted = wanted._within((KeyRange(b"", bytes(key)),))
                case LessThanOrEqual(("key",), bytes() | bytearray() as key):
                    wanted = wanted._within((KeyRange(b"", bytes(key) + b"\0"),))
                case EqualTo(("partition",), int() as number):
                    wanted = replace(wanted, partitions=_both(wanted.partitions, [number]))
                case In(("partition",), numbers):
                    wanted = replace(wanted, partitions=_both(wanted.partitions, numbers))
                case EqualTo(("replica_index",), int() as number):
                    indexes = _both(wanted.replica_indexes, [number])
                    wanted = replace(wanted, replica_indexes=indexes)
                case In(("replica_index",), numbers):
                    indexes = _both(wanted.replica_indexes, numbers)
                    wanted = replace(wanted, replica_indexes=indexes)
                case EqualTo(("node",), str() as node):
                    wanted = replace(wanted, nodes=_both(wanted.nodes, [node]))
                case In(("node",), nodes):
                    wanted = replace(wanted, nodes=_both(wanted.nodes, nodes))
                case _:
                    pass
        return wanted

    def ranges_of(self, copy: CopySeen, partitions: int) -> Ranges:
        """Return the ranges to read of a copy; none: it need not be read.

        `partitions`: of the zone; 0: not known.
        """
        state = copy.state
        if not _has(self.replica_indexes, state.replica_index) or not _has(self.nodes, copy.node):
            return ()
        return _bounded(self._ranges_in(state.partition, partitions))

    def partitions_of(self, partitions: int) -> frozenset[int] | None:
        """Return the partitions that may have wanted rows; None: all.

        `partitions`: of the zone; 0: not known.
        """
        if not self.ranges:
            return frozenset()
        if not partitions:
            return self.partitions
        found = [number for number in range(partitions) if self._ranges_in(number, partitions)]
        return frozenset(found) if len(found) < partitions else None

    def slots_left(self, copy: CopySeen, partitions: int) -> frozenset[int] | None:
        """Return the slots whose rows are wanted of a copy; None: all that it has."""
        if self.slots is None or (
            partitions and _slots(copy.state.partition, partitions) <= self.slots
        ):
            return None
        return self.slots

    def _ranges_in(self, partition: int, partitions: int) -> Ranges:
        """Return the ranges to read of a partition; `partitions`: of the zone; 0: not known."""
        if not _has(self.partitions, partition):
            return ()
        if not partitions:
            return self.ranges
        if self.slots is not None and not self.slots & _slots(partition, partitions):
            return ()
        shift = slot_shift(partitions)
        return tuple(
            each
            for each in self.ranges
            if (slot := slot_of(each)) is None or slot >> shift == partition
        )

    def _within(self, ranges: Ranges) -> "Wanted":
        return replace(self, ranges=intersection(self.ranges, ranges))


def wanted_of(options: Options) -> Wanted:
    """Return what the options ask for.  Raises Unreadable."""
    prefix = options.get("prefix", "").encode()
    return Wanted(
        (KeyRange(prefix, after_prefix(prefix)),),
        _slots_named(options.get("slots", "")),
        partition_numbers(options),
    )


def only(key: bytes) -> KeyRange:
    """Return the range of one key."""
    return KeyRange(key, key + b"\0")


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the lowest key above all that begin with `prefix`; None: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


_AFTER_RESERVED = after_prefix(RESERVED) or b""


def slot_of(keys: KeyRange) -> int | None:
    """Return the slot of all keys of a range, if it is known: of one key, or by a hash tag.

    Internal keys are in partitions whatever their slot.
    """
    first, before = keys
    if first < _AFTER_RESERVED and (before is None or before > RESERVED):
        return None
    if before == first + b"\0":
        return key_slot(first)
    tag, end, _ = first.partition(b"{")[2].partition(b"}")
    is_one_tag = bool(tag and end) and before == after_prefix(first)
    return key_slot(first) if is_one_tag else None


def intersection(some: Ranges, others: Ranges) -> Ranges:
    """Return the keys that are in both; ranges of each rise and do not overlap."""
    found: list[KeyRange] = []
    at = other_at = 0
    while at < len(some) and other_at < len(others):
        one, other = some[at], others[other_at]
        first = max(one.first, other.first)
        ends = [end for end in (one.before, other.before) if end is not None]
        before = min(ends, default=None)
        if before is None or first < before:
            found.append(KeyRange(first, before))
        if one.before == before:
            at += 1
        if other.before == before:
            other_at += 1
    return tuple(found)


def _bounded(ranges: Ranges) -> Ranges:
    if len(ranges) <= RANGES_MAX:
        return ranges
    return (KeyRange(ranges[0].first, ranges[-1].before),)


def _has(wanted: frozenset[T] | None, one: T) -> bool:
    return wanted is None or one in wanted


def _both(some: frozenset[T] | None, others: Sequence[T]) -> frozenset[T]:
    return frozenset(others) if some is None else some.intersection(others)


def _slots(partition: int, partitions: int) -> frozenset[int]:
    first, last = partition_slots(partition, partitions)
    return frozenset(range(first, last + 1))


def _slots_named(text: str) -> frozenset[int] | None:
    if not text:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            low, high = 1, 0
        if not 0 <= low <= high < SLOT_COUNT:
            raise Unreadable(
                f"option slots is {text!r}: write slots of 0 to {SLOT_COUNT - 1}, as in 0-99,5000"
            )
        found.update(range(low, high + 1))
    return frozenset(found)
