"""The union of what some copies hold, and which part of it one of them must fetch or undo.

Source: docs/protocol.md, section 5, steps 3 and 4.
"""

from collections.abc import Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Lineage
from quorate.facts.update_counter import kept_under
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.role_state import GatherPlan
from quorate.protocol.messages.replication import FenceAck


class TouchedKeys:
    """The keys that a copy's last updates touched, with each update read from the log once.

    `found`: the keys of updates `first` to `last`; None: the log cannot tell.  `first` 0: not read.
    """

    __slots__ = ("first", "found", "last")

    def __init__(self) -> None:
        self.first = 0
        self.last = 0
        self.found: set[bytes] | None = None

    def look(self, copy: Copy, first: int) -> set[bytes] | None:
        """Return the keys that own updates from `first` on touched; None if the log cannot tell.

        Keys of updates before `first` may be among them, if those were looked at earlier.
        """
        last = copy.lwm
        if (first, last) == (self.first, self.last):
            return self.found
        if self.found is None or not self.first <= first <= self.last < last:
            self.first, self.found = first, _listed_keys(copy, first, last)
        else:
            more = _listed_keys(copy, self.last + 1, last)
            self.found = None if more is None else self.found | more
        self.last = last
        return self.found


def _listed_keys(copy: Copy, first: int, last: int) -> set[bytes] | None:
    touched = copy.touched_keys(first, last)
    if touched is None or None in touched:
        return None
    return {key for key in touched if key is not None}


def plan(
    copy: Copy, answers: Mapping[str, FenceAck], by_use: bool, touched: TouchedKeys
) -> GatherPlan:
    """Return what `copy` lacks to hold the union of `answers` (by node, in order of their names).

    `touched` is kept from one call to the next.

    `by_use`: terms in which nothing was written do not count, so the history goes on where its
    last update is (facts/chain.py).
    """
    lineages = {node: lineage_of(answer, by_use) for node, answer in answers.items()}
    lineage = lineage_of(copy, by_use)
    for each in lineages.values():
        if each.last_term > lineage.last_term:
            lineage = each
    prefix = copy.lineage.agreed_prefix(lineage, copy.lwm)
    own = copy.held_under(lineage, prefix)
    union = own.copy()
    holds: dict[str, IntervalSet] = {}
    for node, answer in answers.items():
        agreed = answer.lineage.agreed_prefix(lineage, answer.lwm)
        holds[node] = kept_under(lineage, agreed, answer.above)
        for first, last in holds[node]:
            union.add(first, last)
    top = union.end_of_prefix(0)
    undo: set[bytes] | None = set()
    if copy.lwm > prefix:
        undo = touched.look(copy, prefix + 1)
    freshest = sorted(
        (node for node, each in lineages.items() if each.last_term == lineage.last_term),
        key=lambda node: (-answers[node].lwm, node),
    )
    wanted: dict[str, list[tuple[int, int]]] = {}
    for first, last in own.gaps(1, top):
        at = first
        while at <= last:
            node, end = _holder_of(copy, at, last, holds)
            wanted.setdefault(node, []).append((at, end))
            at = end + 1
    return GatherPlan(lineage, prefix, top, undo, freshest[0] if freshest else "", wanted)


def _holder_of(copy: Copy, at: int, last: int, holds: Mapping[str, IntervalSet]) -> tuple[str, int]:
    best, end = "", 0
    for node in sorted(holds):
        reach = holds[node].end_of_prefix(at - 1)
        if reach > end:
            best, end = node, reach
    if not best:
        raise InvariantError(f"partition {copy.partition}: nobody holds {at}")
    return best, min(end, last)


def lineage_of(position: Copy | FenceAck, by_use: bool) -> Lineage:
    """Return the lineage of a copy; `by_use`: without last entries that wrote nothing it holds."""
    if not by_use:
        return position.lineage
    held = position.above if isinstance(position, FenceAck) else position.held()
    return position.lineage.without_unused(position.lwm, [term for term, _ in held])
