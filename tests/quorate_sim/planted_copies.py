"""What copies hold, promise, acknowledge and supply: these rules switched off."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.protocol.agent import transfer
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies import supply
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.fill import Fill
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import KeptRows
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import Outbox
from quorate.protocol.messages.replication import FenceAck, Update
from quorate.protocol.storage import Row
from quorate_sim.changed import changed


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

    def names_me(self: ZoneCopies, row: PartitionRow) -> bool:
        voters = row.active.voters if row.active is not None else row.voters
        return any((v.node, v.store) == (self.me.node, self.me.store) for v in voters)

    return changed(ZoneCopies, "names_me", names_me)


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


@contextmanager
def promise_forgotten() -> Iterator[None]:
    """A copy that is deleted takes its promise with it."""

    evict = Copy.evict

    def evict_all(self: Copy, row: PartitionRow, aside: KeptRows | None = None) -> None:
        evict(self, row, aside)
        self.promise_term, self.promise_holder = 0, None
        self.save_promise()

    with changed(Copy, "evict", evict_all):
        yield


def list_forgotten() -> AbstractContextManager[None]:
    """A copy that a row names no more stays."""

    def evict(self: Copy, row: PartitionRow, aside: KeptRows | None = None) -> None:
        self.version = max(self.version, row.version)
        self.save_promise()

    return changed(Copy, "evict", evict)


def snapshot_row_wins() -> AbstractContextManager[None]:
    """Where a full copy brought a row of a key, an update that came meanwhile does not count."""

    def apply(self: Copy, update: Update, compare: bool) -> None:
        counter, term = update.counter, update.term
        for key, value, expires_at in update.operations:
            if key is None:
                self._delete_below(counter, compare)
            elif not (compare and self.get(key) is not None):
                self.space.put(key, Row(counter, term, expires_at, value))
                if value is None:
                    self.tombstones[key] = counter

    return changed(Copy, "_apply", apply)


def tombstone_dropped_early() -> AbstractContextManager[None]:
    """Tombstones go as soon as the copy itself is past them."""

    def purge(self: Copy, most: int) -> int:
        settled, self.settled = self.settled, self.lwm
        looked_at = before(self, most)
        self.settled = settled
        return looked_at

    before = Copy.purge_tombstones

    return changed(Copy, "purge_tombstones", purge)


def refused_batch_forgets() -> AbstractContextManager[None]:
    """What a refused batch was to remove is in no queue any more."""

    def recover(self: Copy) -> None:
        self.purged.clear()
        self.expired.clear()
        before(self)

    before = Copy.recover
    return changed(Copy, "recover", recover)


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
                    self.finished.answered.extend(role.advance(now.boot_ms))
        return turn

    return changed(Replicas, "flush", flush_and_claim)


@contextmanager
def store_known_by_name() -> Iterator[None]:
    """A voter is known by its name: a new store of its node is taken for the one before it."""

    follow = Primary.follow

    def follow_by_name(self: Primary, row: PartitionRow) -> None:
        self.stores = {voter.node: voter.store for voter in row.voters if voter.node in self.stores}
        follow(self, row)
        self.stores = {
            node: self._registered.get(node, store) for node, store in self.stores.items()
        }

    def names_me(self: ZoneCopies, row: PartitionRow) -> bool:
        destination = row.destination
        is_destination = destination is not None and destination.node == self.me.node
        return self.me.node in row.voter_nodes or is_destination

    def is_dead(self: Primary, voter: object) -> bool:
        return False

    with (
        changed(Primary, "follow", follow_by_name),
        changed(Primary, "_is_dead", is_dead),
        changed(ZoneCopies, "names_me", names_me),
    ):
        yield
