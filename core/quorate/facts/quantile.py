"""Estimates a quantile of observations that were counted in buckets."""

from collections.abc import Sequence
from itertools import pairwise


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Return what this share of the observations does not exceed, as Prometheus estimates it.

    `buckets`: upper bounds, ascending, the last one infinite, with how many are below each."""
    wanted = share * buckets[-1][1]
    for (low, under), (high, upto) in pairwise([(0.0, 0.0), *buckets]):
        if upto >= wanted and upto > under:
            inside = (wanted - under) / (upto - under)
            return low if high == float("inf") else low + (high - low) * inside
    return 0.0
