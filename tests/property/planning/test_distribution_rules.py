"""Any cluster, any assignments before: the rules of distribution hold, with the fewest moves."""

from collections import Counter, deque
from math import ceil, floor

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.planning.target.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
)

Rows = list[tuple[str | None, ...]]


@st.composite
def clusters(draw: st.DrawFn) -> list[DataNode]:
    count = draw(st.integers(1, 8))
    names = draw(st.permutations([f"n{at}" for at in range(10)]))[:count]
    heaviest, domains = draw(st.sampled_from([1, 1, 4])), draw(st.integers(0, 4))
    return [
        DataNode(
            name,
            draw(st.integers(1, heaviest)),
            f"d{draw(st.integers(1, domains))}" if domains else "",
        )
        for name in names
    ]


@st.composite
def distributed(draw: st.DrawFn) -> tuple[Rows, list[DataNode], int]:
    """Assignments from another cluster, from nowhere or at random, and what to distribute over."""
    partitions = draw(st.sampled_from([1, 2, 4, 8, 16]))
    replicas = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["new", "other cluster", "any"]))
    rows: Rows = [()] * partitions
    if kind == "other cluster":
        rows = list(
            distribute_partitions(rows, draw(clusters()), draw(st.integers(1, 5))).assignments
        )
    elif kind == "any":
        owner = st.one_of(st.none(), st.sampled_from([f"n{at}" for at in range(10)]))
        row = st.lists(owner, max_size=5, unique_by=lambda node: node or object())
        rows = [tuple(draw(row)) for _ in range(partitions)]
    return rows, draw(clusters()), replicas


def copies_of(distribution: Distribution) -> Counter[str]:
    return Counter(node for owners in distribution.assignments for node in owners)


@settings(derandomize=True, max_examples=250, deadline=None)
@given(distributed())
def test_owners_are_distinct_and_loads_are_shares_rounded(
    case: tuple[Rows, list[DataNode], int],
) -> None:
    rows, cluster, replicas = case
    result = distribute_partitions(rows, cluster, replicas)
    report, copies = result.report, copies_of(result)
    primaries = Counter(owners[0] for owners in result.assignments)

    assert report.copies_per_partition == min(replicas, len(cluster))
    for owners in result.assignments:
        assert len(set(owners)) == len(owners) == report.copies_per_partition
    assert sorted(load.name for load in report.loads) == sorted(node.name for node in cluster)
    for load in report.loads:
        assert (load.copies, load.primaries) == (copies[load.name], primaries[load.name])
        assert abs(load.copies - load.fair_copies) < 1
    weight = sum(node.weight for node in cluster)
    shares = {node.name: len(rows) * node.weight / weight for node in cluster}
    if not any(node.failure_domain for node in cluster):
        if all(shares[n] * report.copies_per_partition <= len(rows) for n in shares):
            for load in report.loads:
                fair = shares[load.name] * report.copies_per_partition
                assert floor(fair + 1e-9) <= load.copies <= ceil(fair - 1e-9)
                fair = shares[load.name]
                assert floor(fair + 1e-9) <= load.primaries <= ceil(fair - 1e-9)
        if len({node.weight for node in cluster}) == 1:
            assert report.copies_max - report.copies_min <= 1
            assert report.primaries_max - report.primaries_min <= 1


@settings(derandomize=True, max_examples=250, deadline=None)
@given(distributed())
def test_copies_are_spread_over_failure_domains_as_evenly_as_nodes_allow(
    case: tuple[Rows, list[DataNode], int],
) -> None:
    rows, cluster, replicas = case
    result = distribute_partitions(rows, cluster, replicas)
    domain = {node.name: node.failure_domain or f"only {node.name}" for node in cluster}
    sizes = Counter(domain.values())
    shared: Counter[str] = Counter()

    for owners in result.assignments:
        inside = Counter(domain[node] for node in owners)
        for one in sizes:
            for other in sizes:
                has_place = inside[other] < sizes[other]
                assert not (has_place and inside[one] > inside[other] + 1), (owners, domain)
        shared.update(name for name, count in inside.items() if count > 1)
    assert result.report.shared_domains == tuple(sorted(shared.items()))


@settings(derandomize=True, max_examples=150, deadline=None)
@given(distributed())
def test_the_order_of_the_nodes_does_not_matter_and_a_second_time_changes_nothing(
    case: tuple[Rows, list[DataNode], int],
) -> None:
    rows, cluster, replicas = case
    result = distribute_partitions(rows, cluster, replicas)

    assert distribute_partitions(rows, cluster[::-1], replicas) == result
    again = distribute_partitions(result.assignments, cluster, replicas)
    assert again.assignments == result.assignments
    assert again.report.moved_copies == again.report.changed_primaries == 0


@settings(derandomize=True, max_examples=150, deadline=None)
@given(distributed())
def test_no_fewer_moves_give_every_node_as_many_copies(
    case: tuple[Rows, list[DataNode], int],
) -> None:
    rows, cluster, replicas = case
    result = distribute_partitions(rows, cluster, replicas)
    names = {node.name for node in cluster}

    if any(node in names for row in rows for node in row):
        least = fewest_moves(rows, result, cluster)
        assert result.report.moved_copies == least


def fewest_moves(rows: Rows, result: Distribution, cluster: list[DataNode]) -> int:
    """By minimum cost flow, written without regard to speed: partition, its domains, nodes."""
    copies = result.report.copies_per_partition
    domain = {node.name: node.failure_domain or f"only {node.name}" for node in cluster}
    inside = [Counter(domain[node] for node in owners) for owners in result.assignments]
    most = {name: max(counts[name] for counts in inside) for name in domain.values()}
    least = {name: min(counts[name] for counts in inside) for name in domain.values()}
    network = _Flow()
    for partition, row in enumerate(rows):
        network.add("source", partition, copies, 0)
        for name in sorted(most):
            # Large rewards make the flow keep to the least each domain has to hold.
            network.add(partition, (partition, name), least[name], -1000)
            network.add(partition, (partition, name), most[name] - least[name], 0)
        for node in domain:
            network.add((partition, domain[node]), node, 1, 0 if node in row else 1)
    for node, count in copies_of(result).items():
        network.add(node, "sink", count, 0)
    flow, cost = network.cheapest("source", "sink")

    assert flow == copies * len(rows)
    return cost + 1000 * len(rows) * sum(least.values())


class _Flow:
    """A network of arcs [to, capacity, cost], the reverse of arc n being n ^ 1."""

    def __init__(self) -> None:
        self.arcs: list[list[int]] = []
        self.out: list[list[int]] = []
        self.numbers: dict[object, int] = {}

    def number(self, vertex: object) -> int:
        if vertex not in self.numbers:
            self.numbers[vertex] = len(self.out)
            self.out.append([])
        return self.numbers[vertex]

    def add(self, start: object, end: object, capacity: int, cost: int) -> None:
        a, b = self.number(start), self.number(end)
        for here, there, room, price in ((a, b, capacity, cost), (b, a, 0, -cost)):
            self.out[here].append(len(self.arcs))
            self.arcs.append([there, room, price])

    def cheapest(self, start: object, end: object) -> tuple[int, int]:
        source, sink = self.number(start), self.number(end)
        flow = total = 0
        while True:
            cost = {source: 0}
            came: dict[int, int] = {}
            queue = deque([source])
            while queue:
                at = queue.popleft()
                for arc in self.out[at]:
                    there, room, price = self.arcs[arc]
                    if room and cost[at] + price < cost.get(there, 1 << 40):
                        cost[there] = cost[at] + price
                        came[there] = arc
                        if there not in queue:
                            queue.append(there)
            if sink not in came:
                return flow, total
            at = sink
            while at != source:
                self.arcs[came[at]][1] -= 1
                self.arcs[came[at] ^ 1][1] += 1
                at = self.arcs[came[at] ^ 1][0]
            flow, total = flow + 1, total + cost[sink]
