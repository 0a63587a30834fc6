"""A copy's role as primary: activation, counting acknowledgements, joint mode, freezing.

    FENCING --majority promised--> GATHERING --nothing missing--> ADOPTING
    ADOPTING --majority adopted--> WAITING (leases of earlier terms) --> SERVING --Freeze--> frozen
    (all of them, with reasons: role_state)

A role belongs to one term and one process incarnation.  It ends when a higher term is promised or a
row says so, and never serves again after that.  Source: docs/protocol.md, sections 4 to 6.
"""

from collections.abc import Callable, Mapping

from quorate.facts import chain
from quorate.facts.errors import InvariantError
from quorate.facts.lineage import Entry, Lineage
from quorate.facts.partition_row import PartitionRow, Reset, quorum
from quorate.facts.topology import Holder, Voter
from quorate.facts.update_counter import check_primary_counter
from quorate.protocol.copies import gathering
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.open_part import OpenPart
from quorate.protocol.copies.role_state import (
    CountedVoters,
    FrozenFor,
    Gathering,
    GatherPlan,
    JointMode,
    Peer,
    Retries,
    Stage,
    check_transition,
)
from quorate.protocol.copies.shared_leases import FOREVER, Grants, ServingUntil
from quorate.protocol.copies.waiters import ALONE_MAX_MS, Waiter, Waiting
from quorate.protocol.messages.replication import Batch, FenceAck
from quorate.protocol.storage import Operation


class Primary(Waiting):
    """The role of one copy in one term.

    Times are boot milliseconds.

    Whose role it is:

    - `copy`, `row`, `holder`, `term`: the copy, the newest row of the term, and what it promised
    - `began_ms`: when the role began

    Activation:

    - `stage`: how far it is; changed by `enter` alone
    - `handed_over`: the term began with a migration for which the earlier primary froze, so there
      is nothing to gather and no lease to wait for
    - `gathering`: what was fetched so far
    - `touched`: the keys of own updates that may have to be undone
    - `lineage`: the copy's lineage with the entry of this term; None until the copy has adopted it
    - `persisted`: that adoption is durable
    - `lease_until`: when every lease is over that this agent granted to earlier primaries

    Other copies:

    - `peers`: node -> the copy of each other voter, and of the destination of a migration
    - `stores`: node -> the store that the row names for it
    - `voters`: how the row's voters are counted outside joint mode
    - `ahead`: with PRIMARY_SYNC, a counter that a quorum did not hold yet, and since when it was
      the highest
    - `is_full_sync`: an update also needs every online owner to be acknowledged;
      `counted_owners`: the copies that count as owners for that
    - `joint`: the migration whose voters must agree, too; None outside joint mode
    - `announced`: the acknowledged and the settled counter that were last announced, at
      `announced_ms` (0: never, or it is to be repeated)

    What the master was told:

    - `has_reported`: that the role serves, since it began or the master last asked for everything
    - `retries`: when something was last sent that is repeated until it is answered
    - `frozen`: the migration for which the role has stopped serving for good; None: it has not

    Clients (more of it: waiters.py):

    - `lease`: until when a quorum lets the role serve; roles that depend on the same things share
      it
    - `gave_up_ms`: the `lapsed_ms` of the lease at which waiting clients were given up; 0: none
      were
    - `turn`: the updates of the present turn, encoded
    - `changed`: called with the operations of each update as it is written; None: nobody listens
    - `locks`, `parts`: locked key -> transaction; the parts and decisions that have a row
      (transactions/parts.py)
    """

    __slots__ = (
        "_entered",
        "_registered",
        "ahead",
        "announced",
        "announced_ms",
        "began_ms",
        "changed",
        "counted_owners",
        "frozen",
        "gathering",
        "gave_up_ms",
        "handed_over",
        "has_reported",
        "holder",
        "is_full_sync",
        "joint",
        "lease",
        "lease_until",
        "lineage",
        "locks",
        "parts",
        "peers",
        "persisted",
        "retries",
        "row",
        "stage",
        "stores",
        "term",
        "touched",
        "turn",
        "voters",
    )

    def __init__(
        self,
        copy: Copy,
        row: PartitionRow,
        holder: Holder,
        registered: Mapping[str, str],
        now_ms: int,
        is_full_sync: bool = False,
        answers_alone: bool = False,
    ) -> None:
        super().__init__(copy, answers_alone)
        self.is_full_sync = is_full_sync
        self.ahead = (0, now_ms)
        self._registered = registered  # node -> its store, as registered now
        self.row = row
        self.holder = holder
        self.term = row.term
        self.stage = self._entered = Stage.FENCING
        self.peers: dict[str, Peer] = {}
        self.counted_owners: tuple[Peer, ...] = ()
        self.stores: dict[str, str] = {}
        self.locks: dict[bytes, bytes] = {}
        self.parts: dict[bytes, OpenPart] = {}
        self.turn: list[bytes] = []
        self.changed: Callable[[tuple[Operation, ...]], None] | None = None
        self.joint: JointMode | None = None
        self.frozen: FrozenFor | None = None
        self.handed_over = False
        self.lease = ServingUntil(0)
        self.gave_up_ms = 0
        self.began_ms = now_ms
        self.lease_until = 0
        self.gathering = Gathering()
        self.touched = gathering.TouchedKeys()
        self.announced = (0, 0)
        self.announced_ms = 0
        self.lineage: Lineage | None = None
        self.persisted = False
        self.retries = Retries()
        self.has_reported = False
        self.voters = CountedVoters((), (), True, 0)
        self.follow(row)

    # --- voters and quorums ----------------------------------------------------------------------

    def follow(self, row: PartitionRow) -> None:
        """Apply a newer row of the same term: changed voters, a migration that began or ended."""
        before, self.row = self.row.active, row
        stores = {voter.node: voter.store for voter in row.voters}
        migration = row.active
        if migration is not None and migration.destination is not None:
            newcomer = migration.destination.node
            if newcomer not in stores and (
                before is None or before.migration_id != migration.migration_id
            ):
                # We may have missed a row in between, on which the newcomer deleted what it had
                # reported.
                self.peers.pop(newcomer, None)
            stores.setdefault(newcomer, migration.destination.store)
        if self.asks_others:
            for voter in row.left_by_reset:
                stores.setdefault(voter.node, voter.store)
        stores.pop(self.holder.node, None)
        for node in [n for n in self.peers if self.stores.get(n) != stores.get(n)]:
            del self.peers[node]
        for node in sorted(stores):
            self.peers.setdefault(node, Peer())
        self.stores = stores
        if self.joint is not None and (
            migration is None or migration.migration_id != self.joint.migration.migration_id
        ):
            self.joint = None
        others = [voter for voter in row.voters if voter.node in self.peers]
        nodes = [voter.node for voter in others]
        peers = [self.peers[voter.node] if not self._is_dead(voter) else Peer() for voter in others]
        votes = self.holder.node in row.voter_nodes
        if votes and self._is_dead(self.holder):
            votes = False  # our store was replaced: our own vote does not count
            nodes.append(self.holder.node)
            peers.append(Peer())
        quorum_index = len(row.voters) - self._needed(row.voters)
        self.voters = CountedVoters(tuple(nodes), tuple(peers), votes, quorum_index)
        for node in row.owners:
            if node in self.peers:
                self.peers[node].ready_ms = -1
        self._count_owners()

    def set_ready(self, peer: Peer, ready_ms: int) -> None:
        """Note when the master was first told that the copy is ready; see `Peer.ready_ms`."""
        was_ready, peer.ready_ms = peer.ready_ms >= 0, ready_ms
        if was_ready is not (ready_ms >= 0):
            self._count_owners()

    def _count_owners(self) -> None:
        """Find the copies that count as owners.

        One that the master was told is ready counts as well: it may be an owner by now.
        """
        owners = self.row.owners
        self.counted_owners = tuple(
            [peer for node, peer in self.peers.items() if node in owners or peer.ready_ms >= 0]
        )

    @property
    def asks_others(self) -> bool:
        """Whether copies that a reset left are asked for what they hold."""
        reset = self.row.reset
        return reset is not None and (self.copy.last_term < reset.term or self.is_unproven)

    @property
    def is_unproven(self) -> bool:
        """Whether nothing is known to have been written since the last reset, and all restarted.

        Then the history goes on from the last update that any of the links has.
        """
        reset, copy = self.row.reset, self.copy
        ends = [link.ended for link in reset.links if link.needed] if reset is not None else []
        if reset is None or not ends or copy.last_term < reset.term:
            return False
        if copy.is_alive or self.lineage is not None:
            return False
        answers = [peer.answer for peer in self.voters.peers if peer.answer is not None]
        used = [gathering.lineage_of(copy, by_use=True).last_term]
        used += [gathering.lineage_of(answer, by_use=True).last_term for answer in answers]
        return max(used) < ends[-1] and not any(answer.is_alive for answer in answers)

    def awaited(self) -> tuple[str, ...]:
        """Return nodes that a reset left, of which more must say what they hold; empty: none."""
        reset = self.row.reset
        if reset is None or not self.is_unproven:
            return ()
        alive = tuple(voter for voter in reset.others if not self._is_dead(voter))
        used = {self.holder.node: gathering.lineage_of(self.copy, by_use=True).last_term}
        for node, peer in self.peers.items():
            if peer.promised and peer.answer is not None:
                used[node] = gathering.lineage_of(peer.answer, by_use=True).last_term
        reset = Reset(reset.term, alive, reset.links)
        return chain.awaited(reset, self.row.voters, used)

    def others(self) -> list[tuple[str, Peer]]:
        """Return the copies that are asked although they do not vote, by node."""
        if not self.asks_others:
            return []
        nodes = [voter.node for voter in self.row.left_by_reset]
        return [(node, self.peers[node]) for node in nodes if node in self.peers]

    def _needed(self, voters: tuple[Voter, ...]) -> int:
        """Return how many of `voters` make a quorum; below a majority only if stores are gone."""
        return quorum(len(voters), sum(self._is_dead(voter) for voter in voters))

    def _is_dead(self, voter: Voter | Holder) -> bool:
        """Return whether the voter's store is gone for good, so that nothing it said counts."""
        return self._registered.get(voter.node, voter.store) != voter.store

    def _count(self, voters: tuple[Voter, ...], value: dict[str, int]) -> int:
        """Return the highest number that a quorum of `voters` reaches."""
        ranked = sorted(
            (-1 if self._is_dead(voter) else value.get(voter.node, -1) for voter in voters),
            reverse=True,
        )
        return ranked[self._needed(voters) - 1]

    def _quorum(self, value: dict[str, int]) -> int:
        """Like `_row_quorum`; in joint mode also over the new voters and the destination."""
        reached = self._row_quorum(value)
        if self.joint is not None:
            migration = self.joint.migration
            reached = min(reached, self._count(migration.voters, value))
            destination = migration.destination
            if destination is not None:
                holds = -1 if self._is_dead(destination) else value.get(destination.node, -1)
                reached = min(reached, holds)
        return reached

    def _row_quorum(self, value: dict[str, int]) -> int:
        """Return the highest number that a quorum of each of the row's sets of voters reaches."""
        return min(self._count(voters, value) for voters in self.row.voter_sets)

    def acknowledged(self) -> int:
        """Return the counter up to which the quorum durably holds every update."""
        if self.joint is None and not self.row.sets:
            voters = self.voters
            ranked = [peer.lwm if peer.adopted else -1 for peer in voters.peers]
            if voters.votes:
                ranked.append(self.copy.durable_lwm)
            ranked.sort()
            reached = ranked[voters.quorum_index]
        else:
            value = {n: peer.lwm for n, peer in self.peers.items() if peer.adopted}
            value[self.holder.node] = self.copy.durable_lwm
            reached = self._quorum(value)
        return min(reached, self._by_all_owners()) if self.is_full_sync else reached

    def _by_all_owners(self) -> int:
        """Return the counter up to which every online owner durably holds every update."""
        lowest = self.copy.durable_lwm
        for peer in self.counted_owners:
            if peer.adopted:
                lowest = min(lowest, peer.lwm)
            elif peer.ready_ms < 0:  # an owner; one that was ready is no owner yet
                return -1
        return lowest

    def settled(self) -> int:
        """Return the counter up to which every voter and the destination hold all updates."""
        lows = [peer.lwm if peer.adopted else 0 for peer in self.peers.values()]
        return min([self.copy.durable_lwm, *lows])

    @property
    def serving_until(self) -> int:
        """The boot time, in ms, until which a quorum grants the lease."""
        return self.lease.ms

    @serving_until.setter
    def serving_until(self, until_ms: int) -> None:
        self.lease = ServingUntil(until_ms, self.lease.lapsed_ms)  # the old one may be shared

    def grants(self) -> Grants | None:
        """Return what a serving role's lease depends on; None with several sets of voters.

        The lease of a role without is recomputed with every answer to a heartbeat.
        """
        if self.joint is not None or self.row.sets:
            return None
        voters = self.voters
        promised = tuple([peer.promised for peer in voters.peers])
        return Grants(voters.nodes, promised, voters.votes, voters.quorum_index)

    def granted_until(self, held_until: Mapping[str, int]) -> int:
        """Return until when the role serves (boot ms), by definition.

        Voters that promised this term to this incarnation grant the lease.
        """
        if self.stage is not Stage.SERVING:
            return 0
        value = {n: held_until.get(n, 0) for n, peer in self.peers.items() if peer.promised}
        value[self.holder.node] = FOREVER
        return self._quorum(value)

    def enter(self, stage: Stage) -> None:
        """Go on to another stage."""
        check_transition(self.copy.partition, self.stage, stage)
        self.stage = self._entered = stage

    def repeat_reports(self) -> None:
        """Report and ask everything again, because the master may not have what was reported."""
        self.retries.forget()
        self.has_reported = False
        self.announced_ms = 0

    def is_quiet(self) -> bool:
        """Return whether only an event can give the role something to do."""
        if self.stage is not Stage.SERVING or self.row.active is not None:
            return False
        return self.has_reported and all(
            peer.adopted and peer.ready for peer in self.peers.values()
        )

    def serves(self, now_ms: int) -> bool:
        """Return whether commands may be answered now."""
        return self.lease.ms > now_ms and not self.frozen

    # --- updates ---------------------------------------------------------------------------------

    def write(self, operations: tuple[Operation, ...]) -> int:
        """Write these rows under the next counter; return the counter."""
        if self.changed is not None:
            self.changed(operations)
        self.turn.append(self.copy.write(operations))
        return self.copy.lwm

    def batch(self, updates: list[bytes], behind: int = 0) -> Batch:
        """Return these updates and the role's position, as every copy gets them.

        `behind`: how many updates follow in later messages.
        """
        copy = self.copy
        return Batch(
            copy.partition,
            self.term,
            copy.lwm - behind,
            copy.majority,
            copy.settled,
            tuple(updates),
        )

    def advance(self, now_ms: int) -> list[Waiter]:
        """Recount acknowledgements; return the waiters that may be answered, in counter order."""
        reached = self.acknowledged()
        if reached > self.acked:
            self.acked = self.copy.majority = reached
        elif not self.answers_alone:
            return []
        if self.answers_alone:
            reached = self.acked
            if self._may_answer_alone(now_ms):
                reached = max(reached, self.copy.durable_lwm)
        return self.answer(reached)

    def _may_answer_alone(self, now_ms: int) -> bool:
        """Return whether clients may be answered before a quorum holds their writes.

        While a quorum grants the lease, no later primary has served.
        """
        if self.acked >= self.ahead[0]:
            self.ahead = (self.copy.lwm, now_ms)
        is_followed = now_ms - self.ahead[1] < ALONE_MAX_MS
        return is_followed and self.lease.ms > now_ms and self.voters.votes

    def check(self) -> None:
        """Raise InvariantError unless the role is the one its copy promised (I-4).

        And unless its stage was entered by `enter`, and agrees with what the role has done.
        """
        copy, stage = self.copy, self.stage
        if copy.promise_term != self.term or copy.promise_holder != self.holder:
            raise self._broken(f"the copy promised {copy.promise_term} to {copy.promise_holder}")
        if stage is not self._entered:
            raise self._broken(f"{stage.name} was not entered from {self._entered.name}")
        serves = stage is Stage.SERVING  # the usual case: the others need not be compared
        if (self.lineage is None) is (serves or stage >= Stage.ADOPTING):
            raise self._broken(f"{stage.name} with the lineage {self.lineage}")
        if self.persisted and not copy.adopted:
            raise self._broken(f"persisted, but the copy is in {copy.last_term}")
        if not self.persisted and (serves or stage > Stage.ADOPTING):
            raise self._broken(f"{stage.name} before its lineage entry is durable")
        if serves:
            check_primary_counter(copy)
        elif self.joint is not None or self.frozen is not None:
            raise self._broken(f"{stage.name} in joint mode, or frozen")
        if self.waiters and self.waiters[-1].counter > copy.lwm:
            raise self._broken(f"a waiter waits for {self.waiters[-1].counter}")

    def _broken(self, what: str) -> InvariantError:
        return InvariantError(f"partition {self.copy.partition}, term {self.term}: {what}")

    # --- activation ------------------------------------------------------------------------------

    def promised(self, node: str, ack: FenceAck, now_ms: int) -> None:
        """Take in `node`'s promise of our term.

        Its report counts for gathering until the lineage entry is stored.
        """
        peer = self.peers.get(node)
        if peer is None or ack.term != self.term or ack.store != self.stores.get(node):
            return
        peer.promised = True
        if not peer.told:
            peer.asked_ms = -1
        peer.answer = ack
        peer.progress_ms = now_ms
        # Each answer is an upper bound: the peer has granted no such lease since its promise.
        until = now_ms + ack.lease_ms
        peer.lease_until = until if peer.lease_until < 0 else min(peer.lease_until, until)

    def has_quorum_promised(self) -> bool:
        """Return whether a quorum of the voters (ourselves included) promised the term."""
        value = {n: 1 for n, peer in self.peers.items() if peer.promised}
        value[self.holder.node] = 1
        return self._row_quorum(value) == 1

    def has_quorum_adopted(self) -> bool:
        """Return whether a quorum of the voters (ourselves included, durably) adopted the term."""
        value = {n: 1 for n, peer in self.peers.items() if peer.adopted}
        value[self.holder.node] = 1 if self.persisted else 0
        return self._row_quorum(value) == 1

    def are_leases_over(self, now_ms: int) -> bool:
        """Return whether no earlier primary can have its lease any more.

        This is so when the leases that a quorum of the voters (ourselves included) had granted are
        over.  These voters have promised our term, so they grant an earlier primary no new lease,
        and it cannot have a quorum of leases without one of them (protocol.md, section 5, step 7).
        """
        over = {n: 1 for n, peer in self.peers.items() if 0 <= peer.lease_until <= now_ms}
        over[self.holder.node] = 1 if self.lease_until <= now_ms else 0
        return self._row_quorum(over) == 1

    def gather(self) -> GatherPlan:
        """Return what we lack to hold the union of the answers.

        Source: docs/protocol.md, section 5, steps 3 and 4.
        """
        voters = {voter.node for voter in self.row.voters} | {node for node, _ in self.others()}
        answers = {n: p.answer for n, p in sorted(self.peers.items()) if p.answer and n in voters}
        return gathering.plan(self.copy, answers, self.is_unproven, self.touched)

    def adopt_own(self, plan: GatherPlan) -> None:
        """Store the lineage entry of this term; this is done once and never computed again."""
        entry = Entry(self.term, plan.top + 1)
        self.copy.adopt(plan.lineage.appended(entry), plan.prefix, self.gathering.rows)
        self.lineage = self.copy.lineage
        self.gathering = Gathering()  # its rows are in the copy
        self.touched = gathering.TouchedKeys()
        if self.copy.lwm != plan.top:
            raise InvariantError(
                f"partition {self.copy.partition}: activated at {self.copy.lwm}, not {plan.top}"
            )
