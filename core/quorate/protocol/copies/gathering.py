"""The union of what some copies hold, and which part of it one of them must fetch.

Source: docs/protocol.md, section 5, steps 3 and 4; section 7, "After a restart of all".
"""

from collections.abc import Iterator, Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import Link, Reset, majority
from quorate.facts.topology import Voter
from quorate.facts.update_counter import kept_under
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.role_state import GatherPlan
from quorate.protocol.messages.replication import FenceAck


def plan(copy: Copy, answers: Mapping[str, FenceAck], by_use: bool) -> GatherPlan:
    """Return what `copy` lacks to hold the union of `answers` (by node, in order of their names).

    `by_use`: terms in which nothing was written do not count, so the history goes on where its
    last update is.
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
        undo = copy.touched_keys(prefix + 1, copy.lwm)
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


def awaited(reset: Reset, now: tuple[Voter, ...], used: Mapping[str, int]) -> tuple[str, ...]:
    """Return nodes that a reset left, of which more must say what they hold; empty: none.

    The history goes on from the last link in which something was written. So links are gone
    through from the newest to the oldest. Of each, those that the next reset left are asked, as
    many as are in every quorum together with the survivor. If one of them, or a copy of a later
    link, has an update of a later term, older links need not be asked.

    - `now`: the row's present voters
    - `used`: the last term in which something was written, by node, of all that were heard
    """
    newest = max(used.values(), default=0)
    for link, left in left_by_links(reset, now):
        if newest >= link.ended:
            return ()
        count = len(link.voters)
        needed = min(count - majority(count), len(left))
        missing = tuple(node for node in left if node not in used)
        if len(left) - len(missing) < needed:
            return missing
    return ()


def left_by_links(reset: Reset, now: tuple[Voter, ...]) -> Iterator[tuple[Link, list[str]]]:
    """Yield each link, from the newest to the oldest, with the nodes of which it is the last one.

    These are voters of no later link, nor `now`, whose stores still keep what they had.
    """
    others, later = {*reset.others}, {voter.node for voter in now}
    for link in reversed(reset.links):
        yield link, [v.node for v in link.voters if v in others and v.node not in later]
        later |= {voter.node for voter in link.voters}
