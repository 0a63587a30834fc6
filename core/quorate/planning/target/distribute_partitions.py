"""Distribute a zone's partitions: which nodes own each one, and which owner is its primary.

The rules; where two collide, the earlier one wins:

1. The copies of a partition are on distinct nodes.
2. A partition's copies are spread over the failure domains as evenly as their nodes allow. If a
   domain would have to hold less than its nodes' share for that, its nodes get more.
3. Each node owns its share of the copies, by weight, rounded up or down (largest remainder).
4. No more copies move than rule 3 requires.
5. Each node is primary of its share of the partitions, rounded up or down, and few primaries
   change.
6. In a zone without any copies, each node gets one contiguous run of primaries (short CLUSTER
   SLOTS).

The names of the nodes are sorted and replaced by integers at the edge, and no set is iterated: the
same input gives the same answer under any hash seed (I-9).
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import msgspec

from quorate.facts.partition_row import REPLICAS_MAX
from quorate.planning.target.choose_primaries import choose_primaries
from quorate.planning.target.place_copies import Placement
from quorate.planning.target.quotas import copy_shares, even_spread, rounded_shares, shares_within


class DataNode(msgspec.Struct, frozen=True):
    """A node that may own copies.

    `failure_domain` "": the node is a domain of its own. A node that is not `online` gets nothing
    new and is never primary. It stays an owner only if fewer nodes are online than the zone has
    replicas: a lost voter is replaced as soon as there is a spare, and not before.
    """

    name: str
    weight: int = 1
    failure_domain: str = ""
    online: bool = True


class NodeLoad(msgspec.Struct, frozen=True):
    """The share of one online node. `fair_copies`: its exact share of the copies."""

    name: str
    copies: int
    primaries: int
    fair_copies: float


class DistributionReport(msgspec.Struct, frozen=True):
    """How well the rules were kept.

    - `copies_per_partition`: the zone's replicas or the number of online nodes, whichever is less;
      `missing_copies`: the zone's replicas less that.
    - `shared_domains`: (failure domain, number of partitions with two or more copies in it), sorted
      by name.
    - `moved_copies`: copies on nodes that did not have them.
    - `changed_primaries`: partitions that had another primary.
    """

    copies_per_partition: int
    missing_copies: int
    moved_copies: int
    changed_primaries: int
    shared_domains: tuple[tuple[str, int], ...]
    loads: tuple[NodeLoad, ...]

    @property
    def copies_min(self) -> int:
        """Copies on the node with the fewest."""
        return min(load.copies for load in self.loads)

    @property
    def copies_max(self) -> int:
        """Copies on the node with the most."""
        return max(load.copies for load in self.loads)

    @property
    def primaries_min(self) -> int:
        """Primaries on the node with the fewest."""
        return min(load.primaries for load in self.loads)

    @property
    def primaries_max(self) -> int:
        """Primaries on the node with the most."""
        return max(load.primaries for load in self.loads)


class Distribution(msgspec.Struct, frozen=True):
    """`assignments[partition][replica_index]` is the name of an owner; index 0 is the primary."""

    assignments: tuple[tuple[str, ...], ...]
    report: DistributionReport


def distribute_partitions(
    current: Sequence[Sequence[str | None]], nodes: Sequence[DataNode], replicas: int
) -> Distribution:
    """Return the target assignments of a zone.

    `current[partition]`: its owners by replica index, None for a free place; names that are not in
    `nodes` are gone. For a new zone it is a sequence of empty sequences. ValueError if no node is
    online, a name comes twice, a weight is below 1, or `replicas` is not in 1..7.
    """
    _check_nodes(nodes, replicas)
    online = sorted((node for node in nodes if node.online), key=lambda node: node.name)
    number = {node.name: at for at, node in enumerate(online)}
    weights = [node.weight for node in online]
    domains = _domain_numbers(online)
    copies = min(replicas, len(online))
    before = [_numbers(row, number) for row in current]
    present = [0] * len(online)
    for row in before:
        for node in row:
            present[node] += 1

    spread = even_spread([domains.count(at) for at in range(max(domains) + 1)], copies)
    shares = copy_shares(len(before), weights, domains, spread)
    quotas = rounded_shares(shares, domains, present)
    primary_shares = shares_within(Fraction(len(before)), weights, [0] * len(online), quotas)
    placed_before = before
    if not any(present):
        placed_before = _runs(primary_shares)
    primary_quotas = [(share.__floor__(), share.__ceil__()) for share in primary_shares]
    placement = Placement(placed_before, quotas, primary_quotas, domains, spread)
    placement.fill()
    primaries = choose_primaries(
        placement.owners, placed_before, placement.primaries, primary_quotas
    )

    offline = {node.name for node in nodes if not node.online}
    names = [node.name for node in online]
    assignments = tuple(
        _arranged(row, [names[node] for node in owners], names[primary], offline, replicas - copies)
        for row, owners, primary in zip(current, placement.owners, primaries, strict=True)
    )
    copies_of = [len(owned) for owned in placement.owned]
    report = DistributionReport(
        copies_per_partition=copies,
        missing_copies=replicas - copies,
        moved_copies=sum(
            node not in row
            for row, owners in zip(before, placement.owners, strict=True)
            for node in owners
        ),
        changed_primaries=sum(
            row[0] != after[0]
            for row, after in zip(current, assignments, strict=True)
            if row and row[0] is not None
        ),
        shared_domains=_shared_domains(placement.owners, online, domains),
        loads=tuple(
            NodeLoad(name, copies_of[at], primaries.count(at), float(shares[at]))
            for at, name in enumerate(names)
        ),
    )
    return Distribution(assignments, report)


def placed_voters(replicas: Sequence[str | None], voters: Sequence[str]) -> tuple[str | None, ...]:
    """Return a row's `replicas` with the voters that are missing from it put into its free places.

    These voters are offline, or online again and not yet filled; they still have a copy.
    """
    absent = [voter for voter in voters if voter not in replicas]
    placed = [absent.pop(0) if node is None and absent else node for node in replicas]
    return (*placed, *absent)


def _check_nodes(nodes: Sequence[DataNode], replicas: int) -> None:
    if not 1 <= replicas <= REPLICAS_MAX:
        raise ValueError(f"replicas is {replicas}; it must be 1..{REPLICAS_MAX}")
    if not any(node.online for node in nodes):
        raise ValueError("no node is online: there is nothing to distribute partitions over")
    names = sorted(node.name for node in nodes)
    for name, other in pairwise(names):
        if name == other:
            raise ValueError(f"node {name!r} is listed twice; each name must be given once")
    for node in nodes:
        if node.weight < 1:
            raise ValueError(f"node {node.name!r} has weight {node.weight}; it must be 1 or more")


def _domain_numbers(nodes: Sequence[DataNode]) -> list[int]:
    """Return the number of each node's failure domain; a node without one gets its own."""
    numbers: dict[tuple[str, str], int] = {}
    return [
        numbers.setdefault(
            (node.failure_domain, "" if node.failure_domain else node.name), len(numbers)
        )
        for node in nodes
    ]


def _numbers(row: Sequence[str | None], number: dict[str, int]) -> list[int]:
    """Return the online owners of a row, each once, in order."""
    found: list[int] = []
    for name in row:
        node = number.get(name, -1) if name is not None else -1
        if node >= 0 and node not in found:
            found.append(node)
    return found


def _runs(primary_shares: Sequence[Fraction]) -> list[list[int]]:
    """Return a first owner for each partition of a new zone: one run of partitions per node."""
    nothing = [0] * len(primary_shares)
    counts = rounded_shares(primary_shares, range(len(primary_shares)), nothing)
    return [[node] for node, count in enumerate(counts) for _ in range(count)]


def _arranged(
    row: Sequence[str | None],
    owners: Sequence[str],
    primary: str,
    offline: set[str],
    offline_max: int,
) -> tuple[str, ...]:
    """Return the owners by replica index: the primary first, the others where they were if free.

    Up to `offline_max` offline owners of `row` stay as well.
    """
    members = list(owners)
    if offline_max and offline:
        absent = [name for name in row if name is not None and name in offline]
        members += absent[:offline_max]
    width = len(members)
    if row and row[0] == primary and len(row) == width and all(name in members for name in row):
        return tuple(name for name in row if name is not None)
    places: list[str | None] = [None] * width
    places[0] = primary
    free = [name for name in members if name != primary]
    displaced = row[0] if row else None
    for at, name in enumerate(row):
        if 0 < at < width and name in free and name is not None:
            places[at] = name
            free.remove(name)
        elif 0 < at < width and name == primary and displaced in free and displaced is not None:
            places[at] = displaced
            free.remove(displaced)
    rest = iter(free)
    return tuple(next(rest) if name is None else name for name in places)


def _shared_domains(
    owners: Sequence[Sequence[int]], nodes: Sequence[DataNode], domains: Sequence[int]
) -> tuple[tuple[str, int], ...]:
    if len(nodes) == max(domains) + 1:
        return ()
    counts: dict[str, int] = {}
    for row in owners:
        seen: list[int] = []
        shared: list[int] = []
        for node in row:
            domain = domains[node]
            if domain in seen and domain not in shared:
                shared.append(domain)
                name = nodes[node].failure_domain
                counts[name] = counts.get(name, 0) + 1
            seen.append(domain)
    return tuple(sorted(counts.items()))
