"""Choose the node that gets a free place of a partition: one with the highest due.

Among nodes that are due nearly the same, it is the one that shares the fewest partitions with the
present owners, counted between node and failure domain in both directions. Otherwise a node might
share its partitions with one domain only; if it were lost, its copies could not be spread evenly
over the other domains.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from quorate.planning.target.find_chain import NOBODY

NEARLY = 3
"""Nodes whose due differs by at most this many copies are due nearly the same: enough to have a
choice, few enough to keep one until the end."""

CHOICES = 4
"""Nodes and domains to look at. More would change little, and a zone may have hundreds of
domains."""

Due = tuple[int, int]
"""(minus the number of copies still due, node or failure domain): sorts the most due first."""


class Vacancies:
    """Nodes that are due copies, by failure domain. `take` hands them out one by one."""

    __slots__ = ("_domains", "_is_free", "_order", "_queues", "_together")

    def __init__(
        self, owners: Sequence[Sequence[int]], room: Sequence[int], domains: Sequence[int]
    ) -> None:
        self._domains = domains
        self._is_free = max(domains) + 1 == len(domains)  # every node is its own domain
        self._queues: list[list[Due]] = [[] for _ in range(max(domains) + 1)]
        for node, free in enumerate(room):
            if free > 0:
                self._queues[domains[node]].append((-free, node))
        for queue in self._queues:
            heapify(queue)
        # Domains by the copies that their nodes are due together. A domain that is in nearly every
        # partition must not be left until the end.
        self._order: list[Due] = [
            (sum(due for due, _ in queue), domain)
            for domain, queue in enumerate(self._queues)
            if queue
        ]
        heapify(self._order)
        self._together: dict[tuple[int, int], int] = {}  # by node and domain of another owner
        if self._order and not self._is_free:
            for nodes in owners:
                for at, node in enumerate(nodes):
                    self._note(node, nodes[:at])

    def take(self, owners: Sequence[int], fits: Callable[[int], bool]) -> int:
        """Return the node that gets a place beside `owners`; NOBODY if none that is due fits.

        The caller must give it the place: its due has already been reduced by one.
        """
        looked_at: list[Due] = []
        found: list[tuple[int, Due, Due]] = []
        while self._order and len(found) < CHOICES:
            if found and (self._is_free or self._order[0][0] > found[0][1][0] + NEARLY):
                break
            domain = heappop(self._order)
            looked_at.append(domain)
            found += [
                (self._count_together(node[1], owners), domain, node)
                for node in self._fitting(domain[1], owners, fits)
            ]
        best = min(found, default=None)
        for due, domain_number in looked_at:
            if best is not None and best[1][1] == domain_number:
                due += 1
            if due < 0:
                heappush(self._order, (due, domain_number))
        for entry in found:
            due, node_number = entry[2]
            if entry is best:
                due += 1
            if due < 0:
                heappush(self._queues[self._domains[node_number]], (due, node_number))
        if best is None:
            return NOBODY
        if not self._is_free:
            self._note(best[2][1], owners)
        return best[2][1]

    def _fitting(
        self, domain: int, owners: Sequence[int], fits: Callable[[int], bool]
    ) -> list[Due]:
        """Return the nodes of the domain to choose from, and remove them from its queue."""
        queue = self._queues[domain]
        found: list[Due] = []
        refused: list[Due] = []
        while queue and len(found) < CHOICES:
            if found and queue[0][0] > found[0][0] + NEARLY:
                break
            entry = heappop(queue)
            if fits(entry[1]):
                found.append(entry)
                continue
            refused.append(entry)
            if entry[1] not in owners:
                break  # the domain has its share of this partition
        for entry in refused:
            heappush(queue, entry)
        return found

    def _count_together(self, node: int, owners: Sequence[int]) -> int:
        if self._is_free:
            return 0
        here = self._domains[node]
        return sum(
            self._together.get((node, self._domains[owner]), 0)
            + self._together.get((owner, here), 0)
            for owner in owners
        )

    def _note(self, node: int, owners: Sequence[int]) -> None:
        """Note that `node` shares a partition with each of `owners`."""
        together, here = self._together, self._domains[node]
        for owner in owners:
            there = self._domains[owner]
            together[node, there] = together.get((node, there), 0) + 1
            together[owner, here] = together.get((owner, here), 0) + 1
