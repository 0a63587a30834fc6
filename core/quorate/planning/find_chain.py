"""By which chain of steps a copy too many on one node becomes a copy more on a node with room.

Source: minimum cost flow by shortest augmenting paths.  Copies flow from partitions over their
failure domains to nodes; a new copy costs one, an owner that stays nothing.  In the residual
network a node hands a copy of one of its partitions to another node of the same failure domain, or,
where the spread permits, of another one; undoing a new copy earns back its cost.
"""

import enum
from collections import deque
from collections.abc import Sequence

from quorate.facts.errors import InvariantError
from quorate.planning.quotas import Spread

NOBODY = -1

Link = tuple[int, int, int]
"""(giver, partition, taker): one copy changes hands."""
Chain = tuple[int, list[Link]]
"""The node that gets a copy more at first, and the links that pass it on; (NOBODY, []) for none."""
Vertex = tuple[int, int, int]
"""(node, partition, failure domain), what does not apply being NOBODY."""


class Effort(enum.IntEnum):
    """How much to pay, in new copies, and hence how far to look."""

    FREE = 0
    CHEAP = 1
    ANY = 2


class Network:
    """The flow so far, as lists shared with who changes them.

    `owners[partition]`, `kept[partition]` (who owned it before), `owned[node]` (its partitions),
    `room[node]` (what it is due less what it has), `domains[node]`.
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
        """The cheapest chain from one of `starts` (node: cost so far) to a node with room.

        FREE finds chains that cost nothing, CHEAP those that need one new copy, at its end.  They
        look only at who was an owner before and at nodes with room, so they are quick.  ANY is
        the full search; every chain carried out must have been a cheapest one, then no cycle of
        the network is negative.
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
                        # Nothing is cheaper: free chains are used up before any other is asked for.
                        return _chain_to((taker, NOBODY, NOBODY), came)
            for vertex in self._next_domains(partition, domain):
                reach(vertex, price)
        return (NOBODY, []) if best is None else _chain_to(best, came)

    def _takers(
        self, partition: int, domain: int, goals: Sequence[int], effort: Effort
    ) -> Sequence[int]:
        """Who may be looked at for a copy that stays in `domain`."""
        if domain == NOBODY:
            return ()
        if effort == Effort.ANY:
            return self._members[domain]
        some = self.kept[partition] if effort == Effort.FREE else [*self.kept[partition], *goals]
        return [node for node in some if self.domains[node] == domain]

    def _next_domains(self, partition: int, domain: int) -> list[Vertex]:
        """Where a copy may go that leaves its failure domain, or (NOBODY) has left it."""
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
