"""Decides the row that a key whose copies differ gets, by the strategy that a person chose.

Pure.  The decision depends on the copies' rows alone, not on the order in which they were read.
Where the strategy has no single answer, the key is irreparable, with the reason.  A deleted key is
a tombstone, or no row once the tombstone is purged.  Both count as "no value".

Source of the strategies: Ignite 2, "consistency repair" (differs where that depends on the order of
reading: see docs/spark.md).
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from quorate.facts.keyspace import is_reserved
from quorate_spark.verdict import CopyRow, KeyDifference


class Strategy(enum.StrEnum):
    """The rule by which a row is chosen."""

    LWW = "LWW"
    """The row that was written last."""
    PRIMARY = "PRIMARY"
    """The primary's row."""
    RELATIVE_MAJORITY = "RELATIVE_MAJORITY"
    """The row that more copies have than any other one."""
    REMOVE = "REMOVE"
    """No row: the key is deleted."""
    CHECK_ONLY = "CHECK_ONLY"
    """None: the difference is only reported."""


class Action(enum.StrEnum):
    """The treatment of a key."""

    WRITE = "write"
    REMOVE = "remove"
    IRREPARABLE = "irreparable"


class Decision(NamedTuple):
    """The decision about one key, with its reason.

    `row`: a copy's row that is written again, None unless `action` is WRITE.  `right`: the nodes
    whose copies have what was decided already, by name.
    """

    action: Action
    reason: str
    row: CopyRow | None = None
    right: tuple[str, ...] = ()


def decide(difference: KeyDifference, strategy: Strategy) -> Decision:
    """Return the decision about one key that was confirmed to differ."""
    if is_reserved(bytes.fromhex(difference.key_hex)):
        return _irreparable("an internal row, which belongs to a transaction")
    # By node, so that no tie is broken by the order of reading.
    copies = sorted(difference.copies, key=lambda copy: copy.node)
    match strategy:
        case Strategy.LWW:
            if "hwm" in difference.what:
                return _irreparable("a copy has a counter that no primary gave out")
            return _latest(copies)
        case Strategy.PRIMARY:
            return _of_primary(copies)
        case Strategy.RELATIVE_MAJORITY:
            return _most_frequent(copies)
        case Strategy.REMOVE:
            return _chosen(copies, None, "REMOVE deletes every key that differs")
        case Strategy.CHECK_ONLY:
            return _irreparable("CHECK_ONLY only reports")


def content(copy: CopyRow) -> CopyRow | None:
    """Return the copy's row without its place, to be compared; None: no value."""
    if not copy.present or copy.tombstone:
        return None
    return msgspec.structs.replace(copy, node="", replica_index=0)


def _latest(copies: Sequence[CopyRow]) -> Decision:
    missing = [copy.node for copy in copies if not copy.present]
    if missing:
        return _irreparable(
            f"no row on {', '.join(missing)}: a missing row has no version to be compared"
        )
    # Within a term counters rise, and an update of a later term is later than all of earlier ones.
    last = max((copy.term, copy.counter) for copy in copies)
    newest = [copy for copy in copies if (copy.term, copy.counter) == last]
    where = f"counter {last[1]} of term {last[0]}"
    if len({content(copy) for copy in newest}) > 1:
        nodes = ", ".join(copy.node for copy in newest)
        return _irreparable(f"{nodes} have different rows with the same version, {where}")
    return _chosen(copies, newest[0], f"{where} is the latest version")


def _of_primary(copies: Sequence[CopyRow]) -> Decision:
    primary = next((copy for copy in copies if copy.replica_index == 0), None)
    if primary is None:
        return _irreparable("no copy is the primary's")
    if content(primary) is None:
        return _chosen(copies, None, f"the primary {primary.node} has no value")
    return _chosen(copies, primary, f"the row of the primary {primary.node}")


def _most_frequent(copies: Sequence[CopyRow]) -> Decision:
    groups: dict[CopyRow | None, list[CopyRow]] = {}
    for copy in copies:
        groups.setdefault(content(copy), []).append(copy)
    most = max(map(len, groups.values()), default=0)
    winners = [group for group in groups.values() if len(group) == most]
    if len(winners) != 1:
        return _irreparable(f"{len(winners)} different rows are on {most} of {len(copies)} copies")
    return _chosen(copies, winners[0][0], f"on {most} of {len(copies)} copies")


def _chosen(copies: Sequence[CopyRow], row: CopyRow | None, reason: str) -> Decision:
    """Return the decision for `row`; None, or a row without a value, removes the key."""
    wanted = content(row) if row is not None else None
    right = tuple(copy.node for copy in copies if content(copy) == wanted)
    if wanted is None:
        return Decision(Action.REMOVE, reason, None, right)
    return Decision(Action.WRITE, reason, row, right)


def _irreparable(reason: str) -> Decision:
    return Decision(Action.IRREPARABLE, reason)
