"""Place the copies of each partition, so that every node has its quota and few copies move.

Nodes and failure domains are integers here. A copy that stays costs nothing, a new one costs one.
First each free place is given to the node that is due most. Then nodes above their quota hand
copies to nodes below it, directly. If no direct step is left (the only node below its quota owns
that partition already, or its failure domain has its share), the cheapest chain of steps is
searched for: A's copy goes to B, B's copy of another partition goes to C. Such chains always exist,
because fractions of copies could be spread evenly, and flows with whole bounds have whole
solutions.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import gcd

from quorate.planning.target.find_chain import NOBODY, Chain, Effort, Link, Network
from quorate.planning.target.quotas import Spread
from quorate.planning.target.vacancies import Vacancies


class Placement:
    """The owners as placed so far, and the room that each node has left.

    `owners[partition]`; `kept[partition]`: its owners before that still exist.
    `primaries[partition]`: the owner at index 0 as long as it stays, else NOBODY. If a primary's
    copy moves, the role moves along if that evens out the primaries.
    """

    __slots__ = (
        "_all_stay",
        "_copies",
        "_domains",
        "_led",
        "_let_go",
        "_network",
        "_primary_quotas",
        "_searches",
        "_spread",
        "_spread_is_free",
        "kept",
        "owned",
        "owners",
        "primaries",
        "room",
    )

    def __init__(
        self,
        before: Sequence[Sequence[int]],
        quotas: Sequence[int],
        primary_quotas: Sequence[tuple[int, int]],
        domains: Sequence[int],
        spread: Spread,
    ) -> None:
        self.kept = before
        self.room = list(quotas)
        self.owned: list[dict[int, None]] = [{} for _ in quotas]
        self._primary_quotas = primary_quotas
        self._led = [0] * len(quotas)
        self._let_go: dict[int, None] = {}  # partitions with owners that cannot all stay
        self._searches: dict[tuple[int, int, bool], Iterator[int]] = {}
        self._domains = domains
        self._spread = spread
        self._spread_is_free = len(spread.at_most) == len(quotas)  # every node its own domain
        self._all_stay: dict[tuple[int, ...], bool] = {}  # by the owners' failure domains
        self._copies = spread.extras + sum(spread.at_least)
        self.owners: list[list[int]] = []
        self.primaries: list[int] = []
        for nodes in before:
            for node in nodes:
                self.room[node] -= 1
        for partition, nodes in enumerate(before):
            owners = self._stay(partition, nodes)
            self.owners.append(owners)
            for node in owners:
                self.owned[node][partition] = None
            primary = nodes[0] if owners and nodes[0] == owners[0] else NOBODY
            self.primaries.append(primary)
            if primary != NOBODY:
                self._led[primary] += 1

        self._network = Network(self.owners, self.kept, self.owned, self.room, domains, spread)

    def _stay(self, partition: int, nodes: Sequence[int]) -> list[int]:
        """Return the owners of a partition that stay: all, unless they are too many or too close.

        Otherwise the primary stays, and then those with the most room that still fit.
        """
        if self._spread_is_free and len(nodes) <= self._copies:
            return list(nodes)
        inside = tuple([self._domains[node] for node in nodes])
        if inside not in self._all_stay:
            fitting: list[int] = []
            for node in nodes:
                if self._fits(fitting, node):
                    fitting.append(node)
            self._all_stay[inside] = len(fitting) == len(nodes)
        if self._all_stay[inside]:
            return list(nodes)
        owners: list[int] = []
        rest = sorted(nodes[1:], key=lambda node: -self.room[node])
        for node in (*nodes[:1], *rest):
            if self._fits(owners, node):
                owners.append(node)
            else:
                self.room[node] += 1
                self._let_go[partition] = None
        owners.sort(key=nodes.index)
        return owners

    def fill(self) -> None:
        """Fill the free places, then even out."""
        if self._let_go:
            self._take_back()
        for partition in self._fill_directly():
            self._fill_by_chain(partition)
        self._hand_over_nearly_all()
        self._hand_over_directly()
        self._hand_over_by_chains()

    def _take_back(self) -> None:
        """Exchange owners that were let go for owners that stay, if that evens out for free."""
        for partition in self._let_go:
            owners = self.owners[partition]
            while len(owners) < self._copies:
                starts = {node: 0 for node in self.kept[partition] if self._fits(owners, node)}
                first, links = self._network.find(starts, Effort.FREE)
                if first == NOBODY:
                    break
                self._put(partition, first)
                self._follow(links)
        for node in range(len(self.room)):
            while self.room[node] < 0:
                first, links = self._network.find({node: 0}, Effort.FREE)
                if first == NOBODY:
                    break
                self._follow(links)

    def _fits(self, owners: Sequence[int], node: int, leaver: int = NOBODY) -> bool:
        """Return whether `node` may join `owners` without `leaver`: distinct nodes, even spread."""
        if node in owners:
            return False
        count = len(owners) - (leaver != NOBODY)
        if count >= self._copies:
            return False
        if self._spread_is_free:
            return True
        domains, spread = self._domains, self._spread
        inside: dict[int, int] = {}
        for owner in owners:
            if owner != leaver:
                inside[domains[owner]] = inside.get(domains[owner], 0) + 1
        domain = domains[node]
        here = inside.get(domain, 0)
        if here < spread.at_least[domain]:
            return True
        extras = sum(max(0, n - spread.at_least[at]) for at, n in inside.items())
        return here < spread.at_most[domain] and extras < spread.extras

    def _put(self, partition: int, node: int, leaver: int = NOBODY) -> None:
        """Give the partition a new owner, in place of `leaver` if there is one."""
        owners = self.owners[partition]
        if leaver == NOBODY:
            owners.append(node)
        else:
            owners[owners.index(leaver)] = node
            del self.owned[leaver][partition]
            self.room[leaver] += 1
            if self.primaries[partition] == leaver:
                takes_role = self._led[node] < self._primary_quotas[node][1]
                self.primaries[partition] = node if takes_role else NOBODY
                self._led[leaver] -= 1
                self._led[node] += takes_role
        self.owned[node][partition] = None
        self.room[node] -= 1

    def _fill_directly(self) -> list[int]:
        """Give each free place to a node that is due copies.

        Return the partitions that stay short.
        """
        vacancies = Vacancies(self.owners, self.room, self._domains)
        short: list[int] = []
        count = len(self.owners)
        for partition in range(count) if self._spread_is_free else _scattered(count):
            owners = self.owners[partition]
            while len(owners) < self._copies:
                node = vacancies.take(owners, partial(self._fits, owners))
                if node == NOBODY:
                    short.append(partition)
                    break
                self._put(partition, node)
        return short

    def _hand_over_nearly_all(self) -> None:
        """Serve first the nodes that must get most of the partitions they lack: they cannot choose.

        In each partition the owner that is most above its quota gives its copy. Otherwise a node
        might be left with copies to give only where the taker already has one.
        """
        room = self.room
        for taker, free in enumerate(room[:]):
            if 2 * free <= len(self.owners) - len(self.owned[taker]):
                continue
            for partition, owners in enumerate(self.owners):
                givers = [
                    node for node in owners if room[node] < 0 and self._fits(owners, taker, node)
                ]
                if givers and room[taker] > 0:
                    self._put(partition, taker, min(givers, key=room.__getitem__))

    def _hand_over_directly(self) -> None:
        """Let nodes above their quota hand copies to nodes below it, in one step each."""
        room = self.room
        above = sorted((free, node) for node, free in enumerate(room) if free < 0)
        for _, giver in above:
            below = [node for node, free in enumerate(room) if free > 0]
            while room[giver] < 0 and below:
                taker = max(below, key=lambda node: (room[node], -node))
                partition = self._to_hand_over(giver, taker)
                if partition == NOBODY:
                    below.remove(taker)
                    continue
                self._put(partition, taker, giver)
                if room[taker] == 0:
                    below.remove(taker)

    def _to_hand_over(self, giver: int, taker: int) -> int:
        """Return the partition to hand over, with its primary's role if that evens out primaries.

        If no partition of that kind fits, one of the other kind is returned. With the role it is
        the last one, so that runs of partitions with one primary lose their ends. Without the role,
        each giver starts at another place, so that the taker gets many different primaries. A
        search goes on where the last one for these two nodes ended: a partition that did not fit
        hardly ever fits later, and if it does, a chain finds it.
        """
        led, quotas = self._led, self._primary_quotas
        with_role = led[giver] > quotas[giver][0] and led[taker] < quotas[taker][0]
        key = (giver, taker, with_role)
        if key not in self._searches:
            owned = list(self.owned[giver])
            start = len(owned) if with_role else giver * len(owned) // len(self.room)
            around = owned[:start][::-1] + owned[start:][::-1]
            leads = [self.primaries[partition] == giver for partition in around]
            first = [p for p, led_here in zip(around, leads, strict=True) if led_here == with_role]
            second = [p for p, led_here in zip(around, leads, strict=True) if led_here != with_role]
            self._searches[key] = iter(first + second)
        for partition in self._searches[key]:
            is_there = partition in self.owned[giver]
            if is_there and self._fits(self.owners[partition], taker, giver):
                return partition
        return NOBODY

    def _fill_by_chain(self, partition: int) -> None:
        """Fill the places left: a node goes above its quota and hands another copy on."""
        owners = self.owners[partition]
        while len(owners) < self._copies:
            kept = self.kept[partition]
            starts = {
                node: int(node not in kept)
                for node in range(len(self.room))
                if self._fits(owners, node)
            }
            first, links = self._cheapest_chain(starts)
            if first == NOBODY:
                return
            self._put(partition, first)
            self._follow(links)

    def _hand_over_by_chains(self) -> None:
        """Even out by chains what direct steps could not."""
        for node in range(len(self.room)):
            while self.room[node] < 0:
                first, links = self._cheapest_chain({node: 0})
                if first == NOBODY:
                    break
                self._follow(links)

    def _follow(self, links: Sequence[Link]) -> None:
        """Carry out the links (giver, partition, taker) of a chain, which fit together."""
        for giver, partition, taker in links:
            self._put(partition, taker, giver)

    def _cheapest_chain(self, starts: dict[int, int]) -> Chain:
        """Return a chain from one of `starts` (node: cost of one more copy) to a node with room.

        A chain costs at least one new copy, so the first one found at that price is taken. Most are
        one link long.
        """
        goals = [node for node, free in enumerate(self.room) if free > 0]
        for node in goals:
            if starts.get(node, 2) <= 1:
                return node, []
        for giver, price in starts.items():
            for partition in self.owned[giver]:
                kept, owners = self.kept[partition], self.owners[partition]
                left = price - (giver not in kept)
                for taker in goals:
                    if left + (taker not in kept) <= 1 and self._fits(owners, taker, giver):
                        return giver, [(giver, partition, taker)]
        cheap = self._network.find(starts, Effort.CHEAP)
        return cheap if cheap[0] != NOBODY else self._network.find(starts, Effort.ANY)


def _scattered(count: int) -> list[int]:
    """Return 0..count-1 in an order that keeps neighbours far apart, by steps of the golden ratio.

    In a new zone, partitions with one primary are neighbours. If their other owners were chosen one
    after the other, some nodes would share partitions with one other domain only, and their copies
    could not be spread evenly if they were lost.
    """
    step = max(1, round(count * 0.618))
    while gcd(step, count) > 1:
        step += 1
    return [at * step % count for at in range(count)]
