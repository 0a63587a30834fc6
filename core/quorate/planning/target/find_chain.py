"""Find the cheapest chain of hand-overs from a node with a copy too many to a node with room.

Source: minimum cost flow by shortest augmenting paths. Copies flow from partitions through their
failure domains to nodes. A new copy costs one; an owner that stays costs nothing. In the residual
network a node hands a copy of one of its partitions to another node of the same failure domain or,
where the spread permits, of another domain. Undoing a new copy earns its cost back.
"""

import enum
from collections import deque
from collections.abc import Sequence

from quorate.facts.errors import InvariantError
from quorate.planning.target.quotas import Spread

NOBODY = -1

Link = tuple[int, int, int]
"""(giver, partition, taker): one copy is handed over."""
Chain = tuple[int, list[Link]]
"""The node that first gets a copy more, and the links that pass it on; (NOBODY, []) for no
chain."""
Vertex = tuple[int, int, int]
"""(node, partition, failure domain), with NOBODY for what does not apply."""


class Effort(enum.IntEnum):
    """The most new copies a chain may cost, which limits the search."""

    FREE = 0
    CHEAP = 1
    ANY = 2


class Network:
    """The flow so far, as lists that are shared with the code that changes them.

    `owners[partition]`; `kept[partition]`: its owners before; `owned[node]`: its partitions;
    `room[node]`: its quota less its copies; `domains[node]`: its failure domain.
    """

    __slots__ = ("_members", "domains", "kept", "owned", "owners", "room", "spread")

    def __init__(
        self,
        owners: Sequence[Sequence[int]],
        kept: Sequence[Sequence[int]],
        owned: Sequence[dict[int, None]],
        room: Sequence[int],
        domains: Sequence[int],
        spread: Spread,
    ) -> None:
        self.owners = owners
        self.kept = kept
        self.owned = owned
        self.room = room
        self.domains = domains
        self.spread = spread
        self._members: list[list[int]] = [[] for _ in spread.at_most]
        for node, domain in enumerate(domains):
            self._members[domain].append(node)

    def find(self, starts: dict[int, int], effort: Effort) -> Chain:
        """Return the cheapest chain from one of `starts` (node: cost so far) to a node with room.

        FREE finds chains that cost nothing, CHEAP those that need one new copy, at their end. Both
        are quick: they look only at former owners and at nodes with room. ANY searches everything.
        It requires that every chain carried out before was a cheapest one; then the network has no
        negative cycle.
        """
        goals = [node for node, free in enumerate(self.room) if free > 0]
        if not goals:
            return NOBODY, []
        cost = {(node, NOBODY, NOBODY): price for node, price in starts.items() if price <= effort}
        came: dict[Vertex, Vertex] = {}
        queue = deque(cost)
        queued = set(cost)
        best: Vertex | None = None

        def reach(vertex: Vertex, price: int) -> None:
            if price < cost.get(vertex, price + 1):
                is_cheap = price <= cost[at]
                cost[vertex] = price
                came[vertex] = at
                if vertex not in queued:
                    queued.add(vertex)
                    if is_cheap:
                        queue.appendleft(vertex)
                    else:
                        queue.append(vertex)

        while queue:
            at = queue.popleft()
            queued.discard(at)
            price = cost[at]
            node, partition, domain = at
            if node != NOBODY:
                if price < -len(self.domains):
                    raise InvariantError(f"a cycle of copies through node {node} saves copies")
                if self.room[node] > 0 and (best is None or price < cost[best]):
                    best = at
                if effort != Effort.ANY and price > 0:
                    continue
                for partition in self.owned[node]:
                    gain = node not in self.kept[partition]
                    reach((NOBODY, partition, self.domains[node]), price - gain)
                continue
            for taker in self._takers(partition, domain, goals, effort):
                if taker not in self.owners[partition]:
                    new = taker not in self.kept[partition]
                    if price + new > effort and effort != Effort.ANY:
                        continue
                    reach((taker, NOBODY, NOBODY), price + new)
                    if price + new <= 1 and self.room[taker] > 0:
                        # No chain is cheaper: the free ones are used up before any other is
                        # searched for.
                        return _chain_to((taker, NOBODY, NOBODY), came)
            for vertex in self._next_domains(partition, domain):
                reach(vertex, price)
        return (NOBODY, []) if best is None else _chain_to(best, came)

    def _takers(
        self, partition: int, domain: int, goals: Sequence[int], effort: Effort
    ) -> Sequence[int]:
        """Return the nodes to try as takers of a copy that stays in `domain`."""
        if domain == NOBODY:
            return ()
        if effort == Effort.ANY:
            return self._members[domain]
        some = self.kept[partition] if effort == Effort.FREE else [*self.kept[partition], *goals]
        return [node for node in some if self.domains[node] == domain]

    def _next_domains(self, partition: int, domain: int) -> list[Vertex]:
        """Return the vertices for a copy that leaves `domain`, or (NOBODY) has left its domain."""
        inside = [self.domains[owner] for owner in self.owners[partition]]
        if domain == NOBODY:
            return [
                (NOBODY, partition, other)
                for other, most in enumerate(self.spread.at_most)
                if inside.count(other) < most
            ]
        if inside.count(domain) > self.spread.at_least[domain]:
            return [(NOBODY, partition, NOBODY)]
        return []


def _chain_to(end: Vertex, came: dict[Vertex, Vertex]) -> Chain:
    links: list[Link] = []
    while end in came:
        taker = end[0]
        before = came[end]
        partition = before[1]
        while before[0] == NOBODY:
            before = came[before]
        links.insert(0, (before[0], partition, taker))
        end = before
    return end[0], links
