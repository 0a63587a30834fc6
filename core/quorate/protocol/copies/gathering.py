"""What an activation fetches before it adopts its term: the union of what the voters hold.

Source: docs/protocol.md, section 5, steps 3 and 4.
"""

from collections.abc import Mapping

from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Lineage
from quorate.facts.update_counter import kept_under
from quorate.protocol.copies.chain import lineage_of
from quorate.protocol.copies.copy import Copy
from quorate.protocol.messages.replication import FenceAck
from quorate.protocol.storage import Row


class GatherPlan:
    """The log entries and copies that an activation fetches before it adopts.

    - `undo`: keys whose rows `supplier` gives; None: the own log cannot tell which keys
    - `wanted`: node -> the counter ranges to fetch from it
    - `top`: the LWM under `lineage` after that; `prefix`: up to it, own rows are valid
    """

    __slots__ = ("lineage", "prefix", "supplier", "top", "undo", "wanted")

    def __init__(
        self,
        lineage: Lineage,
        prefix: int,
        top: int,
        undo: set[bytes] | None,
        supplier: str,
        wanted: dict[str, list[tuple[int, int]]],
    ) -> None:
        self.lineage = lineage
        self.prefix = prefix
        self.top = top
        self.undo = undo
        self.supplier = supplier
        self.wanted = wanted


class Gathering:
    """Everything that an activation has fetched so far.

    - `plan`: what was missing when it was last computed; None: not yet
    - `rows`: key -> its row at the plan's supplier (None: it has none), for keys of `plan.undo`
    - `is_blocked`: the last node that supplied updates had none of those that are missing
    """

    __slots__ = ("is_blocked", "plan", "rows")

    def __init__(self) -> None:
        self.plan: GatherPlan | None = None
        self.rows: dict[bytes, Row | None] = {}
        self.is_blocked = False


def plan_gathering(copy: Copy, answers: Mapping[str, FenceAck], by_use: bool = False) -> GatherPlan:
    """Return what `copy` lacks to hold the union of the answers; node -> its answer, by node.

    `by_use`: terms in which nothing was written do not count, so the history goes on where its
    last update is (chain.py).
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
        (n for n, each in lineages.items() if each.last_term == lineage.last_term),
        key=lambda n: (-answers[n].lwm, n),
    )
    wanted: dict[str, list[tuple[int, int]]] = {}
    for first, last in own.gaps(1, top):
        at = first
        while at <= last:
            node, end = _holder_of(copy, at, last, holds)
            wanted.setdefault(node, []).append((at, end))
            at = end + 1
    return GatherPlan(lineage, prefix, top, undo, freshest[0] if freshest else "", wanted)


def _holder_of(copy: Copy, at: int, last: int, holds: dict[str, IntervalSet]) -> tuple[str, int]:
    best, end = "", 0
    for node in sorted(holds):
        reach = holds[node].end_of_prefix(at - 1)
        if reach > end:
            best, end = node, reach
    if not best:
        raise InvariantError(f"partition {copy.partition}: nobody holds {at}")
    return best, min(end, last)
