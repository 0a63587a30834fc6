"""Compute the quota of copies and primaries of each node: its share by weight, rounded to +-1.

Shares are exact fractions, so the same nodes always get the same quotas. A node cannot hold two
copies of one partition and a failure domain should not, which bounds their shares. What is above a
bound is shared among the others by weight.
"""

from collections.abc import Sequence
from fractions import Fraction

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """How many copies of one partition each failure domain takes.

    Each domain has at least `at_least[domain]` copies. It has `at_most[domain]`, which is one more
    if it has a node for it, when it gets one of the partition's `extras`.
    """

    at_least: tuple[int, ...]
    at_most: tuple[int, ...]
    extras: int


def even_spread(domain_sizes: Sequence[int], copies: int) -> Spread:
    """Return the most even spread of `copies` over domains with these numbers of nodes.

    There must be at least `copies` nodes.
    """
    level = 1
    while sum(min(size, level) for size in domain_sizes) < copies:
        level += 1
    at_least = tuple(min(size, level - 1) for size in domain_sizes)
    at_most = tuple(min(size, level) for size in domain_sizes)
    return Spread(at_least, at_most, copies - sum(at_least))


def copy_shares(
    partitions: int, weights: Sequence[int], domains: Sequence[int], spread: Spread
) -> list[Fraction]:
    """Return each node's share of all copies: by weight among domains, then inside each domain."""
    copies = partitions * (spread.extras + sum(spread.at_least))
    members: list[list[int]] = [[] for _ in spread.at_most]
    for node, domain in enumerate(domains):
        members[domain].append(node)
    by_domain = shares_within(
        Fraction(copies),
        [sum(weights[node] for node in nodes) for nodes in members],
        [partitions * count for count in spread.at_least],
        [partitions * count for count in spread.at_most],
    )
    shares = [Fraction(0)] * len(weights)
    for nodes, total in zip(members, by_domain, strict=True):
        own = [weights[node] for node in nodes]
        inside = shares_within(total, own, [0] * len(nodes), [partitions] * len(nodes))
        for node, share in zip(nodes, inside, strict=True):
            shares[node] = share
    return shares


def shares_within(
    total: Fraction, weights: Sequence[int], lows: Sequence[int], highs: Sequence[int]
) -> list[Fraction]:
    """Share `total` by weight, with each share between its bounds, whose sums must enclose `total`.

    Shares that break a bound are set to it, on the side that breaks more, and the rest is shared
    again. Each round settles at least one share.
    """
    shares = [Fraction(0)] * len(weights)
    free = list(range(len(weights)))
    while free:
        weight = sum(weights[at] for at in free)
        for at in free:
            shares[at] = total * weights[at] / weight
        below = {at: lows[at] for at in free if shares[at] < lows[at]}
        above = {at: highs[at] for at in free if shares[at] > highs[at]}
        lacks = sum((low - shares[at] for at, low in below.items()), Fraction(0))
        spills = sum((shares[at] - high for at, high in above.items()), Fraction(0))
        bound = below | above if lacks == spills else below if lacks > spills else above
        if not bound:
            break
        for at, limit in bound.items():
            shares[at] = Fraction(limit)
            total -= limit
        free = [at for at in free if at not in bound]
    return shares


def rounded_shares(
    shares: Sequence[Fraction], groups: Sequence[int], present: Sequence[int]
) -> list[int]:
    """Round each share down or up, so that every group's sum is rounded down or up as well.

    The largest remainders are rounded up. Of equal ones, those with most `present` above their
    floor come first (they keep what they have), then those of the lowest index. The sum of all
    shares must be whole.
    """
    floors = [share.__floor__() for share in shares]
    group_count = max(groups, default=-1) + 1
    sums = [Fraction(0)] * group_count
    below = [0] * group_count
    kept = [0] * group_count
    for at, group in enumerate(groups):
        sums[group] += shares[at]
        below[group] += floors[at]
        kept[group] += max(0, present[at] - floors[at])
    ups = [sums[group].__floor__() - below[group] for group in range(group_count)]
    ranked = sorted(
        (group for group in range(group_count) if sums[group] != sums[group].__floor__()),
        key=lambda group: (-(sums[group] % 1), ups[group] - kept[group], group),
    )
    for group in ranked[: int(sum(shares)) - sum(total.__floor__() for total in sums)]:
        ups[group] += 1
    members: list[list[int]] = [[] for _ in range(group_count)]
    for at, group in enumerate(groups):
        members[group].append(at)
    for group, nodes in enumerate(members):
        nodes.sort(key=lambda at: (-(shares[at] % 1), floors[at] - present[at], at))
        for at in nodes[: ups[group]]:
            floors[at] += 1
    return floors
