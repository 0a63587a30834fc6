"""The waiting times of a zone's clients while it was validated, compared with before.

Agents count the times of commands by upper bound since their processes began.  What a run adds is
the p99 of the commands between its first and its last reading, above that of all before.  A load
that has changed meanwhile changes it as well.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from quorate.facts.quantile import quantile
from quorate_spark.copies import AgentTimes
from quorate_spark.verdict import ClientTimes

COMMANDS_MIN = 100
"""The p99 of fewer commands is one of them."""
P99 = 0.99
_INFINITE = -1
"""The bound of times without one, as agents tell it."""

Counts = Counter[int]


def client_times(
    before: Mapping[str, AgentTimes], after: Mapping[str, AgentTimes]
) -> tuple[ClientTimes | None, ClientTimes | None]:
    """Return the times of reads, and of writes; None: too few commands, or agents tell none.

    An agent that was started again in between is left out.
    """
    same = [node for node in after if node in before and after[node].is_of(before[node])]
    reads = _compared([before[node].reads for node in same], [after[node].reads for node in same])
    writes = _compared(
        [before[node].writes for node in same], [after[node].writes for node in same]
    )
    return reads, writes


def _compared(
    before: list[Mapping[int, int]], after: list[Mapping[int, int]]
) -> ClientTimes | None:
    earlier, until_now = _sum(before), _sum(after)
    meanwhile = until_now - earlier
    if min(meanwhile.total(), earlier.total()) < COMMANDS_MIN:
        return None
    was, is_now = _p99_ms(earlier), _p99_ms(meanwhile)
    return ClientTimes(meanwhile.total(), round(is_now, 3), round(was, 3), round(is_now - was, 3))


def _sum(counts: list[Mapping[int, int]]) -> Counts:
    total = Counts()
    for each in counts:
        total.update(each)
    return total


def _p99_ms(counts: Counts) -> float:
    bounds = sorted(bound for bound in counts if bound != _INFINITE)
    numbers = accumulate([*(counts[bound] for bound in bounds), counts[_INFINITE]])
    upper = [*(bound / 1000 for bound in bounds), float("inf")]
    return quantile(P99, list(zip(upper, numbers, strict=True)))
