"""How a primary begins, and whom it answers when: these rules switched off."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord
from quorate.protocol.agent import committed_rows
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import GatherPlan, Stage
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate_sim.changed import changed


def acknowledge_before_majority() -> AbstractContextManager[None]:
    """Clients are answered when the primary alone holds their update."""

    def acknowledged(self: Primary) -> int:
        return self.copy.durable_lwm

    return changed(Primary, "acknowledged", acknowledged)


def skip_the_lease_wait() -> AbstractContextManager[None]:
    """A new primary does not wait for the leases of the one before it."""

    def granted_until(self: Leases, node: str) -> int:
        return 0

    return changed(Leases, "granted_until", granted_until)


@contextmanager
def same_term_twice() -> Iterator[None]:
    """A restarted primary goes on in its old term: incarnations are not told apart."""

    begin_role = committed_rows._begin_role

    def holder(self: NodeRecord, persistent: bool) -> Holder:
        return Holder(self.name, self.zone_store(persistent), 1)

    def begin_again(
        zone: ZoneCopies, copy: Copy, row: PartitionRow, carried: Primary | None, *rest: Any
    ) -> None:
        last_term, copy.last_term = copy.last_term, 0
        term, copy.promise_term = copy.promise_term, min(copy.promise_term, row.term - 1)
        try:
            begin_role(zone, copy, row, carried, *rest)
        finally:
            copy.promise_term = max(copy.promise_term, term)
            if copy.last_term == 0:
                copy.last_term = last_term

    with changed(NodeRecord, "holder", holder), changed(committed_rows, "_begin_role", begin_again):
        yield


def no_joint_mode() -> AbstractContextManager[None]:
    """While a migration runs, the old voters alone acknowledge and grant leases."""

    def quorum(self: Primary, value: dict[str, int]) -> int:
        return self._count(self.row.voters, value)

    return changed(Primary, "_quorum", quorum)


def lease_forgotten() -> AbstractContextManager[None]:
    """A restarted voter does not wait for the leases it has forgotten."""

    def from_memory(self: Leases, node: str) -> int:
        return self._granted_until.get(node, 0)

    return changed(Leases, "granted_until", from_memory)


def caught_up_before_joint() -> AbstractContextManager[None]:
    """In joint mode the old voters alone acknowledge: the destination may lack answered updates."""

    def acknowledged(self: Primary) -> int:
        value = {n: peer.lwm for n, peer in self.peers.items() if peer.adopted}
        value[self.holder.node] = self.copy.durable_lwm
        return self._count(self.row.voters, value)

    return changed(Primary, "acknowledged", acknowledged)


def lease_not_joint() -> AbstractContextManager[None]:
    """In joint mode the old voters alone grant the lease."""

    def granted_until(self: Primary, held_until: dict[str, int]) -> int:
        value = {n: held_until.get(n, 0) for n, peer in self.peers.items() if peer.promised}
        value[self.holder.node] = 1 << 62
        reached = self._count(self.row.voters, value)
        return reached if self.stage is Stage.SERVING else 0

    return changed(Primary, "granted_until", granted_until)


def slot_order_trusted() -> AbstractContextManager[None]:
    """A new primary believes that who is first in the row holds everything: it asks nobody."""

    gather = Primary.gather

    def gather_alone(self: Primary) -> GatherPlan:
        answers = {node: peer.answer for node, peer in self.peers.items()}
        for peer in self.peers.values():
            peer.answer = None
        try:
            return gather(self)
        finally:
            for node, peer in self.peers.items():
                peer.answer = answers[node]

    return changed(Primary, "gather", gather_alone)


def answered_tail_ignored() -> AbstractContextManager[None]:
    """A new primary takes what it has itself for all there is: of what the others hold it only
    counts that."""

    gather = Primary.gather

    def gather_own(self: Primary) -> GatherPlan:
        answers = {node: peer.answer for node, peer in self.peers.items()}
        for peer in self.peers.values():
            if peer.answer is not None:
                lwm = min(peer.answer.lwm, self.copy.lwm)
                peer.answer = msgspec.structs.replace(peer.answer, lwm=lwm, above=())
        try:
            return gather(self)
        finally:
            for node, peer in self.peers.items():
                peer.answer = answers[node]

    return changed(Primary, "gather", gather_own)


def longest_log_wins() -> AbstractContextManager[None]:
    """Of the answers the longest is taken, not the one of the latest term."""

    gather = Primary.gather

    def gather_longest(self: Primary) -> GatherPlan:
        copy = self.copy
        known = [(copy.lwm, copy.lineage)]
        known += [(p.answer.lwm, p.answer.lineage) for p in self.peers.values() if p.answer]
        longest = max(known, key=lambda each: each[0])[1]
        answers = {n: p.answer for n, p in self.peers.items()}
        own = copy.lineage
        for peer in self.peers.values():
            if peer.answer is not None and peer.answer.lineage.last_term > longest.last_term:
                peer.answer = msgspec.structs.replace(peer.answer, lineage=longest)
        if own.last_term > longest.last_term:
            copy.lineage = longest
        try:
            return gather(self)
        finally:
            copy.lineage = own
            for node, peer in self.peers.items():
                peer.answer = answers[node]

    return changed(Primary, "gather", gather_longest)


def any_number_of_answers() -> AbstractContextManager[None]:
    """Activation does not wait for a majority to promise: one's own vote is enough."""

    def promised(self: Primary) -> bool:
        return True

    return changed(Primary, "has_quorum_promised", promised)


def adopted_by_nobody() -> AbstractContextManager[None]:
    """A new primary serves before a majority has adopted its term."""

    def adopted(self: Primary) -> bool:
        return self.persisted

    return changed(Primary, "has_quorum_adopted", adopted)


@contextmanager
def stale_noop_wins() -> Iterator[None]:
    """Of two lineages with the same last entries the one wins that was never spread: entries are
    compared by their first counter, not by the last term."""

    gather = Primary.gather

    def gather_by_counter(self: Primary) -> GatherPlan:
        answers = {n: p.answer for n, p in self.peers.items()}
        own = self.copy.lineage
        known = [own, *(a.lineage for a in answers.values() if a is not None)]
        lowest = min(known, key=lambda each: (each.last_first, -each.last_term))
        for peer in self.peers.values():
            if peer.answer is not None and peer.answer.lineage.last_term > lowest.last_term:
                peer.answer = msgspec.structs.replace(peer.answer, lineage=lowest)
        if own.last_term > lowest.last_term:
            self.copy.lineage = lowest
        try:
            return gather(self)
        finally:
            self.copy.lineage = own
            for node, peer in self.peers.items():
                peer.answer = answers[node]

    with changed(Primary, "gather", gather_by_counter):
        yield


def read_without_lease() -> AbstractContextManager[None]:
    """A primary answers as long as it has not heard that another took over."""

    def serves(self: Primary, now_ms: int) -> bool:
        return self.stage is Stage.SERVING and not self.frozen

    return changed(Primary, "serves", serves)


def read_of_unanswered() -> AbstractContextManager[None]:
    """A read shows a row that may still be lost."""

    def is_pending(self: Primary, key: bytes) -> bool:
        return False

    return changed(Primary, "is_pending", is_pending)


def serves_while_frozen() -> AbstractContextManager[None]:
    """A primary that is to hand over goes on taking commands."""

    def serves(self: Primary, now_ms: int) -> bool:
        return self.serving_until > now_ms

    return changed(Primary, "serves", serves)


def any_change_is_a_hand_over() -> AbstractContextManager[None]:
    """A new primary gathers nothing and waits for no lease, whether the one before froze or not."""

    def is_hand_over(before: PartitionRow, after: PartitionRow) -> bool:
        return after.term > before.term

    return changed(committed_rows, "is_hand_over", is_hand_over)
