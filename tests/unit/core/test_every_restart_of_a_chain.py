"""Chains of up to four links over five nodes: whoever answers first after a restart of all.

A model of what nodes hold, small enough to go through every case. Each link may write one update,
which any quorum of its voters has. Then so many are lost that a reset narrows it to a survivor, who
fills the other voters of the next link. Of each set of nodes that may have answered when the last
voters activate a primary, it is asked whether that primary waits, and if not, what it then has.
"""

from collections.abc import Collection, Iterator
from itertools import chain as joined
from itertools import combinations
from typing import NamedTuple

import pytest

from quorate.facts import chain
from quorate.facts.partition_row import Link, Reset, majority
from quorate.facts.topology import Voter

NODES = range(5)
Content = tuple[int, ...]
"""The terms of the updates that a node holds, oldest first: one for each link that wrote."""


class World(NamedTuple):
    """`links`: end, voters, and how many are needed. `term`: where the present voters began.
    `acknowledged`: the updates of the line that is to go on."""

    links: tuple[tuple[int, frozenset[int], int], ...]
    voters: frozenset[int]
    holds: tuple[Content, ...]
    acknowledged: Content
    term: int


def subsets(nodes: Collection[int], least: int, most: int) -> Iterator[frozenset[int]]:
    sizes = range(least, most + 1)
    return map(frozenset, joined.from_iterable(combinations(sorted(nodes), n) for n in sizes))


def written(world: World) -> Iterator[World]:
    """Nothing is written, or one update that some quorum has."""
    yield world
    for quorum in subsets(world.voters, majority(len(world.voters)), len(world.voters)):
        line = longest(world, world.voters)
        update = (*line, world.term)
        holds = [update if node in quorum else world.holds[node] for node in NODES]
        yield world._replace(holds=tuple(holds), acknowledged=update)


def longest(world: World, nodes: Collection[int]) -> Content:
    return max((world.holds[node] for node in nodes), key=lambda held: (held[-1:], len(held)))


def narrowed(world: World, returned: int) -> Iterator[World]:
    """Those that are left are no quorum; one of them survives, and fills the next voters.

    If it has everything, that may be known. What it lacks is lost unless a restart finds it.
    """
    voters, term = world.voters, world.term + 10
    needed = len(voters) - majority(len(voters))
    for left in subsets(voters, 1, majority(len(voters)) - 1):
        for survivor in left:
            line = world.holds[survivor]
            has_all = line[: len(world.acknowledged)] == world.acknowledged
            for more in subsets({*NODES} - left, 0, returned):
                next_voters = left | more
                holds = tuple(line if n in next_voters else world.holds[n] for n in NODES)
                for count in (needed, 0) if has_all else (needed,):
                    links = (*world.links, (term, voters, count))
                    yield World(links, next_voters, holds, world.acknowledged, term)


def judge(world: World) -> None:
    """Every set of nodes that may have answered first."""
    reset = Reset(
        world.term,
        tuple(voter(node) for node in NODES if node not in world.voters),
        tuple(Link(ended, tuple(map(voter, sorted(vs))), n) for ended, vs, n in world.links),
    )
    now = tuple(map(voter, sorted(world.voters)))
    for answered in subsets(NODES, 1, 5):
        if len(answered & world.voters) < majority(len(world.voters)):
            continue
        used = {str(node): (world.holds[node] or (0,))[-1] for node in answered}
        ended = max((ended for ended, _, count in world.links if count), default=0)
        if max(used[str(n)] for n in answered & world.voters) < ended and chain.awaited(
            reset, now, used
        ):
            continue
        assert longest(world, answered)[: len(world.acknowledged)] == world.acknowledged, (
            world,
            answered,
        )


def voter(node: int) -> Voter:
    return Voter(str(node), f"store-{node}")


def worlds(links: int, returned: int) -> Iterator[World]:
    """By symmetry, the first survivor is node 0."""
    start = World((), frozenset(NODES), ((),) * 5, (), 0)
    if links == 1:
        yield from (w for first in written(start) for w in narrowed(first, returned))
        return
    for before in worlds(links - 1, returned):
        for world in written(before):
            yield from narrowed(world, 0)


@pytest.mark.parametrize("links", [1, 2])
def test_the_last_acknowledged_update_is_waited_for(links: int) -> None:
    count = 0
    for world in worlds(links, 1):
        judge(world)
        count += 1
    assert count > 1000
