"""Choose the primary among the owners of each partition: balanced, with few changes.

Nodes are integers here. A node with too many primaries hands a role to another owner of the same
partition, along the shortest chain of nodes that ends at one with too few. When no chain is left,
no choice of primaries among these owners is more even.
"""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from quorate.planning.target.find_chain import NOBODY


def choose_primaries(
    owners: Sequence[Sequence[int]],
    kept: Sequence[Sequence[int]],
    present: Sequence[int],
    quotas: Sequence[tuple[int, int]],
) -> list[int]:
    """Return the primary of each partition, one of its owners (NOBODY if it has none).

    - `kept`: the owners that already hold the data. A vacancy goes to one of them before it goes to
      a newcomer.
    - `present`: the present primary if it stays an owner, else NOBODY.
    - `quotas[node]`: the least and the most partitions it should be primary of, met as nearly as
      the owners allow.
    """
    roles = _Roles(owners, present, len(quotas))
    held = roles.held
    for partition, primary in enumerate(present):
        if primary == NOBODY and owners[partition]:
            stay = kept[partition]
            roles.give(
                partition,
                min(
                    owners[partition],
                    key=lambda node: (
                        len(held[node]) >= quotas[node][1],
                        node not in stay,
                        len(held[node]) - quotas[node][1],
                    ),
                ),
            )

    def takes(bound: int) -> Callable[[int], bool]:
        return lambda node: len(held[node]) < quotas[node][bound]

    for bound in (0, 1):  # first to nodes below their least, then to any below its most
        for node, (_, most) in enumerate(quotas):
            while len(held[node]) > most and roles.shift([node], takes(bound)):
                pass
    for node, (least, _) in enumerate(quotas):
        while len(held[node]) < least:
            givers = [at for at, quota in enumerate(quotas) if len(held[at]) > quota[0]]
            if not roles.shift(givers, node.__eq__):
                break
    return roles.primaries


class _Roles:
    """`primaries[partition]`, and the same by node: `held[node]` are the partitions it leads.

    `_takers[giver][taker]` counts the partitions that the giver leads and the taker owns, so that
    chains are searched among nodes and not among their thousands of partitions. `_last` and
    `_beside` are heaps of the partitions of such a pair; an outdated entry is dropped when it comes
    up.
    """

    __slots__ = ("_beside", "_last", "_owners", "_takers", "held", "primaries")

    def __init__(
        self, owners: Sequence[Sequence[int]], present: Sequence[int], node_count: int
    ) -> None:
        self._owners = owners
        self.primaries = list(present)
        self.held: list[dict[int, None]] = [{} for _ in range(node_count)]
        self._takers: list[dict[int, int]] = []
        self._last: dict[tuple[int, int], list[int]] = {}
        self._beside: dict[tuple[int, int], list[int]] = {}
        for partition, primary in enumerate(present):
            if primary != NOBODY:
                self.held[primary][partition] = None

    def give(self, partition: int, node: int) -> None:
        """Make `node` primary of the partition."""
        before = self.primaries[partition]
        if before != NOBODY:
            del self.held[before][partition]
        self.primaries[partition] = node
        self.held[node][partition] = None
        if self._takers:
            self._forget(before, partition)
            self._learn(node, partition)
            self._learn_neighbours(partition)

    def shift(self, givers: Sequence[int], is_taker: Callable[[int], bool]) -> bool:
        """Take one role off one of the givers so that a taker ends up with one more.

        Return False if no chain leads there. The search is breadth first: a chain of n nodes
        changes n - 1 primaries.
        """
        if not self._takers:
            self._learn_all()
        came: dict[int, int] = dict.fromkeys(givers, NOBODY)
        queue = deque(givers)
        while queue:
            node = queue.popleft()
            for other in self._takers[node]:
                if other in came:
                    continue
                came[other] = node
                if is_taker(other):
                    while came[other] != NOBODY:
                        self.give(self._to_pass(came[other], other), other)
                        other = came[other]
                    return True
                queue.append(other)
        return False

    def _to_pass(self, giver: int, taker: int) -> int:
        """Return the role to pass on: one beside the taker's own partitions, else the last."""
        pair = (giver, taker)
        beside = self._beside.get(pair, [])
        while beside:
            partition = -heappop(beside)
            if self.primaries[partition] == giver and self._is_beside(partition, taker):
                return partition
        last = self._last[pair]
        while self.primaries[-last[0]] != giver:
            heappop(last)
        return -heappop(last)

    def _neighbours(self, partition: int) -> list[int]:
        around = (partition - 1, partition + 1)
        return [at for at in around if 0 <= at < len(self.primaries)]

    def _is_beside(self, partition: int, taker: int) -> bool:
        return any(self.primaries[at] == taker for at in self._neighbours(partition))

    def _learn_all(self) -> None:
        self._takers = [{} for _ in self.held]
        for node, partitions in enumerate(self.held):
            for partition in partitions:
                self._learn(node, partition)

    def _learn(self, primary: int, partition: int) -> None:
        """Note that the other owners may take the partition from its primary."""
        takers = self._takers[primary]
        for other in self._owners[partition]:
            if other == primary:
                continue
            takers[other] = takers.get(other, 0) + 1
            heappush(self._last.setdefault((primary, other), []), -partition)
            if self._is_beside(partition, other):
                heappush(self._beside.setdefault((primary, other), []), -partition)

    def _learn_neighbours(self, partition: int) -> None:
        """Note that the neighbouring partitions are now beside this partition's new primary."""
        taker = self.primaries[partition]
        for at in self._neighbours(partition):
            primary = self.primaries[at]
            if primary not in (NOBODY, taker) and taker in self._owners[at]:
                heappush(self._beside.setdefault((primary, taker), []), -at)

    def _forget(self, primary: int, partition: int) -> None:
        if primary == NOBODY:
            return
        takers = self._takers[primary]
        for other in self._owners[partition]:
            if other == primary:
                continue
            takers[other] -= 1
            if not takers[other]:
                del takers[other]
