"""Rules of the protocol switched off on purpose, to see that the simulator notices.

Each defect is a context manager that changes the core for a while.  Seeds that run with one of
`DEFECTS` must fail before long (`quorate_sim.canaries`), else the simulator proves nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord
from quorate.protocol import ownership, supply, transfer
from quorate.protocol.agent import AgentCore
from quorate.protocol.copy import Copy
from quorate.protocol.fill import Fill
from quorate.protocol.leases import Leases
from quorate.protocol.messages import (
    FenceAck,
    Message,
    Prepared,
    PreparedRow,
    Trouble,
    Update,
)
from quorate.protocol.metastore import Key, Revision, Value
from quorate.protocol.outbox import MASTER, Outbox
from quorate.protocol.primary import GatherPlan, Primary, Stage
from quorate.protocol.replicas import Replicas, Turn
from quorate.protocol.storage import Row
from quorate.protocol.zone_master import ZoneMaster
from quorate_operator.metastore_memory import MemoryMetastore
from quorate_operator.second_look import SecondLook


@contextmanager
def changed(owner: Any, name: str, value: object) -> Iterator[None]:
    """`owner.name` is `value` for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


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
def lineage_before_data() -> Iterator[None]:
    """A copy takes over a lineage and still counts its divergent updates as held."""

    def agreed(self: Fill) -> int:
        return self.copy.lwm

    def drop_divergent(self: Copy, lineage: Lineage, prefix: int) -> None:
        above: dict[int, IntervalSet] = {}
        for counter, _, _ in self.storage.log_read(self.partition, prefix + 1, 1 << 62, 1 << 30):
            term = lineage.term_at(counter)
            if term is not None:
                above.setdefault(term, IntervalSet()).add(counter, counter)
        self.above = above

    with changed(Fill, "_agreed", agreed), changed(Copy, "_drop_divergent", drop_divergent):
        yield


def source_deletes_early() -> AbstractContextManager[None]:
    """Who is to leave deletes its copy when the migration begins."""

    def names_me(self: Replicas, row: PartitionRow) -> bool:
        voters = row.active.voters if row.active is not None else row.voters
        return any((v.node, v.store) == (self.me.node, self.me.store) for v in voters)

    return changed(Replicas, "_names_me", names_me)


@contextmanager
def same_term_twice() -> Iterator[None]:
    """A restarted primary goes on in its old term: incarnations are not told apart."""

    begin_role = Replicas._begin_role

    def holder(self: NodeRecord, persistent: bool) -> Holder:
        return Holder(self.name, self.zone_store(persistent), 1)

    def begin_again(
        self: Replicas, copy: Copy, row: PartitionRow, carried: Primary | None, *rest: Any
    ) -> None:
        last_term, copy.last_term = copy.last_term, 0
        term, copy.promise_term = copy.promise_term, min(copy.promise_term, row.term - 1)
        try:
            begin_role(self, copy, row, carried, *rest)
        finally:
            copy.promise_term = max(copy.promise_term, term)
            if copy.last_term == 0:
                copy.last_term = last_term

    with changed(NodeRecord, "holder", holder), changed(Replicas, "_begin_role", begin_again):
        yield


def answer_above_a_hole() -> AbstractContextManager[None]:
    """A copy acknowledges the highest counter it was sent, whatever is missing below it."""

    def ack(self: Replicas, node: str, partition: int, term: int, lwm: int) -> None:
        role = self.roles.get(partition)
        if role is not None and lwm:
            lwm = max(lwm, role.copy.lwm)
        return _ack(self, node, partition, term, lwm)

    _ack = Replicas._ack
    return changed(Replicas, "_ack", ack)


def vote_twice_for_a_term() -> AbstractContextManager[None]:
    """A voter forgets its promise when it is asked for the next lower term."""

    def promise(self: Copy, term: int, holder: Holder) -> bool:
        self.promise_term, self.promise_holder = term, holder
        self.save_promise()
        if not self.present and term > self.version:
            self.present = True
            self.save()
        return True

    return changed(Copy, "promise", promise)


def no_joint_mode() -> AbstractContextManager[None]:
    """While a migration runs, the old voters alone acknowledge and grant leases."""

    def quorum(self: Primary, value: dict[str, int]) -> int:
        return self._count(self.row.voters, value)

    return changed(Primary, "_quorum", quorum)


@contextmanager
def promise_forgotten() -> Iterator[None]:
    """A copy that is deleted takes its promise with it."""

    evict = Copy.evict

    def evict_all(self: Copy, row: PartitionRow) -> None:
        evict(self, row)
        self.promise_term, self.promise_holder = 0, None
        self.save_promise()

    with changed(Copy, "evict", evict_all):
        yield


def lease_forgotten() -> AbstractContextManager[None]:
    """A restarted voter does not wait for the leases it has forgotten."""

    def from_memory(self: Leases, node: str) -> int:
        return self._granted_until.get(node, 0)

    return changed(Leases, "granted_until", from_memory)


def nobody_left_but_stuck() -> AbstractContextManager[None]:
    """The master does not listen to what is stuck."""

    def trouble(self: ZoneMaster, node: str, trouble: Trouble) -> None:
        return None

    return changed(ZoneMaster, "trouble", trouble)


def list_forgotten() -> AbstractContextManager[None]:
    """A copy that a row names no more stays."""

    def evict(self: Copy, row: PartitionRow) -> None:
        self.version = max(self.version, row.version)
        self.save_promise()

    return changed(Copy, "evict", evict)


@contextmanager
def plus_one_for_plus_two() -> Iterator[None]:
    """What follows a migration that was given up takes the number of its prepared row."""

    def failed(row: PartitionRow, new_term: bool) -> PartitionRow:
        version = row.version + 1
        term = version if new_term else row.term
        return msgspec.structs.replace(row, version=version, active=None, term=term)

    def step(row: PartitionRow) -> int:
        return 1

    with changed(ownership, "failed", failed), changed(ownership, "_step", step):
        yield


def caught_up_before_joint() -> AbstractContextManager[None]:
    """In joint mode the old voters alone acknowledge: the destination may lack answered updates."""

    def acknowledged(self: Primary) -> int:
        value = {n: peer.lwm for n, peer in self.peers.items() if peer.adopted}
        value[self.holder.node] = self.copy.durable_lwm
        return self._count(self.row.voters, value)

    return changed(Primary, "acknowledged", acknowledged)


def lease_not_joint() -> AbstractContextManager[None]:
    """In joint mode the old voters alone grant the lease."""

    def renew(self: Primary, held_until: dict[str, int]) -> None:
        value = {n: held_until.get(n, 0) for n, peer in self.peers.items() if peer.promised}
        value[self.holder.node] = 1 << 62
        reached = self._count(self.row.voters, value)
        self.serving_until = reached if self.stage is Stage.SERVING else 0

    return changed(Primary, "renew", renew)


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


def snapshot_row_wins() -> AbstractContextManager[None]:
    """Where a full copy brought a row of a key, an update that came meanwhile does not count."""

    def apply(self: Copy, update: Update, compare: bool = False) -> None:
        counter, term = update.counter, update.term
        for key, value, expires_at in update.operations:
            if key is None:
                self._delete_below(counter, compare)
            elif not (compare and self.get(key) is not None):
                self.space.put(key, Row(counter, term, expires_at, value))
                if value is None:
                    self.tombstones.append((counter, key))

    return changed(Copy, "_apply", apply)


def stale_master_obeyed() -> AbstractContextManager[None]:
    """An agent does what a master says that was followed by another."""

    def obey(self: AgentCore, master_term: int) -> bool:
        if master_term > self.master_term:
            self._store.raise_master_term(master_term)
            self.master_term = master_term
        return True

    return changed(AgentCore, "_obey", obey)


def master_term_forgotten() -> AbstractContextManager[None]:
    """An agent remembers which master it obeyed only while it runs."""

    def obey(self: AgentCore, master_term: int) -> bool:
        if master_term < self.master_term:
            return False
        self.master_term = master_term
        return True

    return changed(AgentCore, "_obey", obey)


def stale_master_writes() -> AbstractContextManager[None]:
    """The metastore takes every write, whatever it was based on."""

    async def write(
        self: MemoryMetastore, key: Key, value: Value | None, expected: Revision | None
    ) -> Revision:
        present = self._stored.get(key)
        return await _write(self, key, value, present.revision if present is not None else None)

    _write = MemoryMetastore.write
    return changed(MemoryMetastore, "write", write)


def tombstone_dropped_early() -> AbstractContextManager[None]:
    """Tombstones go as soon as the copy itself is past them."""

    def purge(self: Copy) -> bool:
        purged = False
        while self.tombstones and self.tombstones[0][0] <= self.lwm:
            counter, key = self.tombstones.popleft()
            row = self.get(key)
            if row is not None and row.value is None and row.counter == counter:
                self.space.drop(key)
                purged = True
        return purged

    return changed(Copy, "purge_tombstones", purge)


def destination_lost_its_store() -> AbstractContextManager[None]:
    """A destination is known by its name: a new process, a new store are taken for it."""

    def prepare(self: Replicas, message: PreparedRow) -> None:
        row = message.row
        copy = self._copy(row.partition)
        if copy.version < row.version:
            copy.prepare(row, message.migration_id)
            self.touch(copy)
        accepted = Prepared(self.uid, row.partition, message.migration_id, row.version, True, "")
        self.out.send_durable(MASTER, accepted)

    return changed(Replicas, "_prepare", prepare)


@contextmanager
def transfer_from_unrepaired() -> Iterator[None]:
    """A copy that has not adopted the term supplies rows."""

    def unchecked(real: Callable[..., object]) -> Callable[..., object]:
        def answer(zone: str, copy: Copy, ask: Any, *rest: Any) -> object:
            last_term, term = copy.last_term, copy.promise_term
            copy.last_term = copy.promise_term = ask.term
            try:
                return real(zone, copy, ask, *rest)
            finally:
                copy.last_term, copy.promise_term = last_term, term

        return answer

    keys, snapshot = unchecked(supply.supply_keys), unchecked(supply.supply_snapshot)
    with changed(transfer, "supply_keys", keys), changed(transfer, "supply_snapshot", snapshot):
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


def promise_not_durable() -> AbstractContextManager[None]:
    """A promise is told before it is on disk."""

    send_durable = Outbox.send_durable

    def send(self: Outbox, node: str, message: Message) -> None:
        if isinstance(message, FenceAck):
            self.send(node, message)
        else:
            send_durable(self, node, message)

    return changed(Outbox, "send_durable", send)


def acknowledged_before_sync() -> AbstractContextManager[None]:
    """A copy acknowledges what it has not synced."""

    flush = Replicas.flush

    def flush_and_claim(self: Replicas, now: Now) -> Turn:
        turn = flush(self, now)
        for copy, last_term, lwm in turn.durable:
            if copy.last_term == last_term and lwm > copy.durable_lwm:
                copy.durable_lwm = lwm
                role = self.roles.get(copy.partition)
                if role is not None:
                    self.finished.answered.extend(role.advance())
        return turn

    return changed(Replicas, "flush", flush_and_claim)


def never_looks_again() -> AbstractContextManager[None]:
    """A master hears of rows that another has written only when it writes them itself."""

    def unread(self: SecondLook, stored: object, revisions: object) -> list[object]:
        return []

    return changed(SecondLook, "unread", unread)


DEFECTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledge-before-majority": acknowledge_before_majority,
    "acknowledged-before-sync": acknowledged_before_sync,
    "answered-above-a-hole": answer_above_a_hole,
    "answered-tail-ignored": answered_tail_ignored,
    "any-number-of-answers": any_number_of_answers,
    "caught-up-before-joint": caught_up_before_joint,
    "destination-lost-its-store": destination_lost_its_store,
    "lineage-before-data": lineage_before_data,
    "list-forgotten": list_forgotten,
    "longest-log-wins": longest_log_wins,
    "master-term-forgotten": master_term_forgotten,
    "never-looks-again": never_looks_again,
    "nobody-left-but-stuck": nobody_left_but_stuck,
    "plus-one-for-plus-two": plus_one_for_plus_two,
    "promise-forgotten": promise_forgotten,
    "promise-not-durable": promise_not_durable,
    "read-of-unanswered": read_of_unanswered,
    "read-without-lease": read_without_lease,
    "same-term-twice": same_term_twice,
    "serves-while-frozen": serves_while_frozen,
    "skip-the-lease-wait": skip_the_lease_wait,
    "slot-order-trusted": slot_order_trusted,
    "snapshot-row-wins": snapshot_row_wins,
    "source-deletes-early": source_deletes_early,
    "stale-master-obeyed": stale_master_obeyed,
    "stale-master-writes": stale_master_writes,
    "stale-noop-wins": stale_noop_wins,
    "tombstone-dropped-early": tombstone_dropped_early,
    "transfer-from-unrepaired": transfer_from_unrepaired,
    "two-removals": no_joint_mode,
    "vote-twice-for-a-term": vote_twice_for_a_term,
}

NOT_BY_SEEDS: dict[str, tuple[Callable[[], AbstractContextManager[None]], str]] = {
    "adopted-by-nobody": (adopted_by_nobody, "nothing has found it yet, and it has no story"),
    "lease-forgotten": (lease_forgotten, "its story alone, tests/scenarios"),
    "lease-not-joint": (lease_not_joint, "its story alone, tests/scenarios"),
}
"""Defects that seeds have not found, and what does; `quorate_sim.canaries NAME` looks for them."""
