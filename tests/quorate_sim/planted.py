"""Rules of the protocol switched off on purpose, to see that the simulator notices.

Each defect is a context manager that changes the core for a while.  A run of seeds with one of
`DEFECTS` must fail within the seeds of one test run, else the simulator proves nothing; the others
show only in a story made for them (tests/scenarios).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord
from quorate.protocol.copy import Copy
from quorate.protocol.fill import Fill
from quorate.protocol.leases import Leases
from quorate.protocol.messages import Trouble
from quorate.protocol.primary import Primary
from quorate.protocol.replicas import Replicas
from quorate.protocol.zone_master import ZoneMaster


@contextmanager
def _changed(owner: Any, name: str, value: object) -> Iterator[None]:
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

    return _changed(Primary, "acknowledged", acknowledged)


def skip_the_lease_wait() -> AbstractContextManager[None]:
    """A new primary does not wait for the leases of the one before it."""

    def granted_until(self: Leases, node: str) -> int:
        return 0

    return _changed(Leases, "granted_until", granted_until)


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

    with _changed(Fill, "_agreed", agreed), _changed(Copy, "_drop_divergent", drop_divergent):
        yield


def source_deletes_early() -> AbstractContextManager[None]:
    """Who is to leave deletes its copy when the migration begins."""

    def names_me(self: Replicas, row: PartitionRow) -> bool:
        voters = row.active.voters if row.active is not None else row.voters
        return any((v.node, v.store) == (self.me.node, self.me.store) for v in voters)

    return _changed(Replicas, "_names_me", names_me)


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

    with _changed(NodeRecord, "holder", holder), _changed(Replicas, "_begin_role", begin_again):
        yield


def answer_above_a_hole() -> AbstractContextManager[None]:
    """A copy acknowledges the highest counter it was sent, whatever is missing below it."""

    def ack(self: Replicas, node: str, partition: int, term: int, lwm: int) -> None:
        role = self.roles.get(partition)
        if role is not None and lwm:
            lwm = max(lwm, role.copy.lwm)
        return _ack(self, node, partition, term, lwm)

    _ack = Replicas._ack
    return _changed(Replicas, "_ack", ack)


def vote_twice_for_a_term() -> AbstractContextManager[None]:
    """A voter forgets its promise when it is asked for the next lower term."""

    def promise(self: Copy, term: int, holder: Holder) -> bool:
        self.promise_term, self.promise_holder = term, holder
        self.save_promise()
        if not self.present and term > self.version:
            self.present = True
            self.save()
        return True

    return _changed(Copy, "promise", promise)


def no_joint_mode() -> AbstractContextManager[None]:
    """While a migration runs, the old voters alone acknowledge and grant leases."""

    def quorum(self: Primary, value: dict[str, int]) -> int:
        return self._count(self.row.voters, value)

    return _changed(Primary, "_quorum", quorum)


@contextmanager
def promise_forgotten() -> Iterator[None]:
    """A copy that is deleted takes its promise with it."""

    evict = Copy.evict

    def evict_all(self: Copy, row: PartitionRow) -> None:
        evict(self, row)
        self.promise_term, self.promise_holder = 0, None
        self.save_promise()

    with _changed(Copy, "evict", evict_all):
        yield


def lease_forgotten() -> AbstractContextManager[None]:
    """A restarted voter does not wait for the leases it has forgotten."""

    def from_memory(self: Leases, node: str) -> int:
        return self._granted_until.get(node, 0)

    return _changed(Leases, "granted_until", from_memory)


def nobody_left_but_stuck() -> AbstractContextManager[None]:
    """The master does not listen to what is stuck."""

    def trouble(self: ZoneMaster, node: str, trouble: Trouble) -> None:
        return None

    return _changed(ZoneMaster, "trouble", trouble)


def list_forgotten() -> AbstractContextManager[None]:
    """A copy that a row names no more stays."""

    def evict(self: Copy, row: PartitionRow) -> None:
        self.version = max(self.version, row.version)
        self.save_promise()

    return _changed(Copy, "evict", evict)


DEFECTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledge-before-majority": acknowledge_before_majority,
    "skip-the-lease-wait": skip_the_lease_wait,
    "lineage-before-data": lineage_before_data,
    "source-deletes-early": source_deletes_early,
    "same-term-twice": same_term_twice,
    "vote-twice-for-a-term": vote_twice_for_a_term,
    "promise-forgotten": promise_forgotten,
    "list-forgotten": list_forgotten,
}
