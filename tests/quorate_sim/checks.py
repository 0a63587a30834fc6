"""What must hold, seen from outside: the invariants that no single process can check by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from quorate.facts.errors import InvariantError
from quorate.facts.keyspace import key_partition
from quorate.facts.partition_row import PartitionRow, check_row, is_quorum
from quorate.facts.topology import NodeRecord, Voter
from quorate.facts.zone import SyncWrites, ZoneRecord
from quorate.protocol.agent.turn import Turn
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.messages.handshake import Hello
from quorate.protocol.messages.master import PreparedRow, RowsStored
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import FenceAck
from quorate.protocol.messages.tools import Refill
from quorate.protocol.storage import Row
from quorate_sim.deleted_copies import needs_copy
from quorate_sim.disk import SimStorage
from quorate_sim.linearizability import Call
from quorate_sim.node_filters import fits
from quorate_sim.placement_checks import placement_problems
from quorate_sim.reset_checks import ResetChecks, is_left
from quorate_sim.silent_checks import check_silent, copies_given_up
from quorate_sim.timer_checks import TimerChecks, data_node_problems

if TYPE_CHECKING:
    from quorate_sim.agent_process import AgentProcess
    from quorate_sim.clients import Op
    from quorate_sim.cluster import Cluster


_ADOPTING, _SERVING = Stage.ADOPTING, Stage.SERVING

Where = tuple[str, int]
"""Zone and partition."""

Store = tuple[str, str]
"""Zone and the name of a store of its copies."""


class Decided(NamedTuple):
    """Who was registered when a master began to write rows: with the newest store there ever was,
    and as that master itself knew it."""

    newest: Mapping[str, NodeRecord]
    known: Mapping[str, NodeRecord]
    refusing: frozenset[tuple[str, str]]
    """Zone and node of each agent that was known to refuse a zone."""
    zone: ZoneRecord | None


class Checks:
    """Watches the whole cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.timers = TimerChecks(cluster)
        self.resets = ResetChecks(cluster)
        self.acknowledged: dict[Where, dict[int, int]] = {}
        self._served: dict[Where, tuple[int, str]] = {}
        self._serving: dict[tuple[Where, int], object] = {}
        self._promises: dict[Store, dict[int, int]] = defaultdict(dict)
        self._present: dict[tuple[str, str, str, int], bool] = {}
        self._obeyed: dict[str, tuple[int, str]] = {}
        self._prepared: dict[tuple[str, int, int], PartitionRow] = {}
        self._oldest_tombstone: dict[tuple[str, str, str, int, int], tuple[int, bytes]] = {}
        self._newest: dict[str, NodeRecord] = {}
        self._rows_stored: dict[Store, dict[int, int]] = defaultdict(dict)
        self._written: dict[Where, dict[int, PartitionRow]] = {}
        self._activated: dict[int, Primary] = {}
        self._answered_in: dict[Where, dict[int, int]] = {}
        self._answered_by: dict[Where, dict[int, str]] = {}
        self._fenced_off: set[int] = set()

    # --- the metastore ---------------------------------------------------------------------------

    def node_written(self, record: NodeRecord) -> None:
        """A registration.  One of an earlier process, which a former master wrote late, brings no
        store back that another has followed."""
        newest = self._newest.get(record.name)
        if newest is None or _age(newest) <= _age(record):
            self._newest[record.name] = record

    def deciding(self, known: Mapping[str, NodeRecord], zone: ZoneRecord | None = None) -> Decided:
        """A master that knows these registrations, and this record of a zone, begins to write."""
        return Decided(dict(self._newest), known, self.resets.refusing(), zone)

    def rows_written(self, uid: str, before: object, rows: object, decided: Decided) -> None:
        """I-1: no step takes a copy that is not made up for, as was known when it was decided.

        I-4: versions and terms of rows never go back; no two rows share a version."""
        assert isinstance(before, tuple)
        assert isinstance(rows, tuple)
        self.cluster.coverage.rows_written(uid, before, rows)
        known = {row.partition: row for row in before}
        for row in rows:
            check_row(row)
            prepared = self._prepared.get((uid, row.partition, row.version), row)
            if prepared != row:
                raise InvariantError(f"I-4: {row} has the version of {prepared}, which was sent")
            # Also where the metastore was lost: a rebuilt row follows what was written before.
            written = self._written.setdefault((uid, row.partition), {})
            old = known.get(row.partition, next(reversed(written.values()), None))
            written.pop(row.version, None)
            written[row.version] = row
            if old is None or old == row:
                continue
            is_older = row.term < old.term or (row.partition not in known and row.term == old.term)
            if row.version <= old.version or is_older:
                raise InvariantError(f"I-4: {row} follows {old}")
            # A voter whose store is gone for good is no copy: without it the row has as many.
            had, zone = self._living(uid, old.voters, decided.newest), self.cluster.zones[uid]
            before_it = len(had) - copies_given_up(zone, old, row, had)
            check_silent(zone, old, row, decided.known, decided.zone)
            living = {
                *self._living(uid, row.voters, decided.newest),
                *self._living(uid, row.voters, decided.known),
            }
            refusing = {node for where, node in decided.refusing if where == uid}
            if self.resets.is_one(uid, old, row, decided.known, refusing):
                continue
            if len(living) < min(before_it, zone.replicas):
                raise InvariantError(f"I-1: {row} has fewer copies than {old}")
        if len(rows) < len(before):
            raise InvariantError(f"rows were lost: {before} became {rows}")

    def _living(
        self, uid: str, voters: tuple[Voter, ...], registered: Mapping[str, NodeRecord]
    ) -> list[Voter]:
        """Those voters that no other store has followed."""
        persistent = self.cluster.zones[uid].persistent
        return [
            voter
            for voter in voters
            if voter.node not in registered
            or registered[voter.node].zone_store(persistent) == voter.store
        ]

    def rows_to_be_told(
        self, uid: str, partition: int, stores: Iterable[Voter]
    ) -> list[PartitionRow]:
        """Rows of which one will be the newest that agents tell of: the newest one that any of
        these stores is known to have, and those after it, which somebody may have heard of."""
        known = max(self._rows_stored[uid, each.store].get(partition, 0) for each in stores)
        written = self._written.get((uid, partition), {})
        return [row for version, row in written.items() if known and version >= known]

    def prepared(self, message: PreparedRow) -> None:
        """A master sends a row that is not yet the row: its number is taken."""
        row = message.row
        self.cluster.coverage.prepared(message)
        self._prepared[message.zone, row.partition, row.version] = row

    # --- an agent's turn -------------------------------------------------------------------------

    def flushed(self, agent: AgentProcess, uid: str, turn: Turn) -> None:
        """I-3: what was deleted is named nowhere in the metastore's row."""
        for copy, _, _ in turn.durable:
            self._check_tombstones(agent, uid, copy)
            key = (agent.label, agent.disk.store, uid, copy.partition)
            was = self._present.get(key, False)
            self._present[key] = copy.present
            if not was or copy.present:
                continue
            self.cluster.coverage.deleted(uid, copy.partition, agent.name)
            row = self.cluster.committed_row(uid, copy.partition)
            store = agent.core.zones[uid].me.store
            written = self._written.get((uid, copy.partition), {})
            gone = Voter(agent.name, store)
            if row is not None and needs_copy(row, gone, copy.version, written):
                raise InvariantError(f"I-3: {agent.label} deleted a copy that {row} names")

    def _check_tombstones(self, agent: AgentProcess, uid: str, copy: Copy) -> None:
        """A tombstone goes only when every copy of its term is past it."""
        key = (agent.label, agent.disk.store, uid, copy.partition, copy.generation)
        before, of = self._oldest_tombstone.pop(key, (0, b""))
        of_now, counter = next(iter(copy.tombstones.items()), (b"", 0))
        oldest = (counter, of_now)
        if counter:
            self._oldest_tombstone[key] = oldest
        interval = self.cluster.zones[uid].sync_writes is SyncWrites.INTERVAL
        if not before or (before, of) == oldest or interval or not copy.adopted:
            return
        if copy.get(of) is not None or copy.lwm < before or copy.tombstones.get(of, 0) >= before:
            return  # it is there, was written over or undone, or a FLUSHALL took it, not its note
        row = self.cluster.committed_row(uid, copy.partition)
        if row is None or is_left(row, copy.last_term):
            return
        for node in row.voter_nodes:
            other = self.cluster.agent_at(node)
            zone = other.core.zones.get(uid) if other is not None else None
            theirs = zone.copies.get(copy.partition) if zone is not None else None
            if theirs is None or theirs.last_term != copy.last_term or theirs.lwm >= before:
                continue
            raise InvariantError(
                f"tombstones: {agent.label} dropped one of {before} in partition {copy.partition}, "
                f"{node} is at {theirs.lwm}"
            )

    def agent_step(self, agent: AgentProcess) -> None:
        """I-2 and I-4 in one process; promises stay; activations keep what was answered."""
        agent.core.check()
        for uid, zone in agent.core.zones.items():
            store, copies = (uid, zone.me.store), zone.copies
            for partition, claimed in self._promises[store].items():
                copy = copies.get(partition)
                if copy is not None and copy.promise_term < claimed:
                    raise InvariantError(
                        f"I-4: {agent.label} partition {partition}: promised {claimed}, then "
                        f"{copy.promise_term}"
                    )
            for partition, stored in self._rows_stored[store].items():
                if zone.copy_of(partition).version < stored:
                    raise InvariantError(
                        f"I-4: {agent.label} partition {partition}: had stored row {stored} and "
                        f"knows {zone.copy_of(partition).version}"
                    )
            for role in zone.roles.values():
                stage = role.stage
                if stage < _ADOPTING:
                    continue
                if id(role) not in self._activated:
                    self._activated[id(role)] = role
                    self.cluster.coverage.activating(agent, role)
                    self._check_activation(agent, uid, role)
                if stage > _ADOPTING and id(role) in self._fenced_off:
                    raise InvariantError(
                        f"I-5: {agent.label} partition {role.copy.partition}: a quorum adopted "
                        f"term {role.term}, which lacks what was answered in a later one"
                    )
                if stage is _SERVING:
                    self._check_alone(agent, uid, role)

    def heard_master(
        self, agent: AgentProcess, master: Hello, message: Message, obeyed: bool
    ) -> None:
        """I-4: who has obeyed a master obeys none before it, and no other of the same number, also
        after a restart."""
        term = getattr(message, "master_term", 0)
        highest, word = self._obeyed.get(agent.disk.store, (0, ""))
        if obeyed and term < highest:
            raise InvariantError(f"I-4: {agent.label} obeys master {term} after {highest}")
        if obeyed and term == highest and master.master_word != word:
            raise InvariantError(
                f"I-4: {agent.label} obeys masters {word} and {master.master_word} of term {term}"
            )
        if obeyed:
            self._obeyed[agent.disk.store] = (term, master.master_word)

    def sent(self, agent: AgentProcess, message: Message) -> None:
        """What an agent claims must be so for ever: a promise, a row that names it."""
        if isinstance(message, FenceAck):
            claimed = self._promises[message.zone, message.store]
            claimed[message.partition] = max(message.term, claimed.get(message.partition, 0))
        elif isinstance(message, RowsStored) and message.zone in agent.core.zones:
            zone = agent.core.zones[message.zone]
            stored = self._rows_stored[message.zone, zone.me.store]
            for partition, version in message.versions:
                stored.pop(partition, None)
                # Not the row that it knows by now: of that one it has said nothing yet.
                if zone.names_me(self._written[message.zone, partition][version]):
                    stored[partition] = version

    def refilled(self, agent: AgentProcess, asked: Refill) -> None:
        """I-6: a copy whose refill is done has the rows of every copy that is where it is."""
        copy = agent.core.zones[asked.zone_name].copies[asked.partition]
        self.cluster.coverage.struck("refill done", [])
        for other in self.cluster.living():
            zone = other.core.zones.get(asked.zone_name)
            theirs = zone.copies.get(asked.partition) if zone is not None else None
            if theirs is None or not theirs.present or not theirs.adopted:
                continue
            if (theirs.last_term, theirs.lwm) == (copy.last_term, copy.lwm) and (
                _live(theirs) != _live(copy)
            ):
                raise InvariantError(
                    f"I-6: {agent.label} has refilled its copy of partition {asked.partition} and "
                    f"differs from {other.label}: {_live(copy)}, {_live(theirs)}"
                )

    def _check_activation(self, agent: AgentProcess, uid: str, role: Primary) -> None:
        """I-5: every counter that was ever answered or shown is here, in its term.

        But for those answered in later terms, when this role comes too late: too few of its voters
        are left that could still adopt its term.  It may never get further.
        """
        copy, where = role.copy, (uid, role.copy.partition)
        known, answered_in = self.acknowledged.get(where, {}), self._answered_in.get(where, {})
        terms = dict(known)
        for counter in self.resets.activated(where, role, known, answered_in):
            self._check_not_held(uid, role, terms[counter], counter)
        for counter, term in known.items():
            at = copy.lineage.term_at(counter)
            if counter <= copy.lwm and at in (None, term):
                continue
            is_later = self._answered_in[where][counter] > role.term
            if is_later and self.resets.has_left(where, role.term):
                continue  # a majority behind a cut, which has not heard of the reset
            if is_later and self._is_too_late(uid, role):
                self._fenced_off.add(id(role))
                continue
            raise InvariantError(
                f"I-5: {agent.label} activates term {role.term} of partition {copy.partition} "
                f"at {copy.lwm} {copy.lineage}: lost ({term}, {counter}), answered"
            )

    def _is_too_late(self, uid: str, role: Primary) -> bool:
        """Whether so many voters have promised a later term that no quorum can adopt this one."""
        partition, voters = role.copy.partition, _members(role.row)
        answered_by = self._answered_by[uid, partition]
        later = {store for term, store in answered_by.items() if term > role.term}
        living = self._living(uid, voters, self._newest)
        could = [
            voter.node
            for voter in living
            if voter.store not in later
            and self._promises[uid, voter.store].get(partition, 0) <= role.term
        ]
        return not is_quorum(role.row, could, [v.node for v in voters if v not in living])

    def _check_alone(self, agent: AgentProcess, uid: str, role: Primary) -> None:
        """I-4: one process serves a term."""
        where = (uid, role.copy.partition)
        key = (where, role.term)
        first = self._serving.setdefault(key, role)
        if first is not role:
            raise InvariantError(f"I-4: {agent.label} serves {key}, which another served")
        term, _ = self._served.get(where, (0, ""))
        if role.term > term:
            self.cluster.coverage.activating(agent, role)
            self._served[where] = (role.term, agent.label)
            top = role.copy.lineage.last_first - 1
            written_in = role.copy.lineage.term_at(top)
            if written_in:  # from now on it shows all of this
                self._check_held(agent, uid, role.copy.partition, written_in, top)
            agent.world.trace(agent.label, f"serves partition {where[1]} in term {role.term}")
            for other in self.cluster.living():
                older = self.cluster.role_of(other, *where)
                if older is None or older.term >= role.term:
                    continue
                if self.resets.has_left(where, older.term):
                    continue
                if older.serves(other.now().boot_ms):
                    raise InvariantError(
                        f"I-4: {agent.label} begins to serve {key}, {other.label} still serves "
                        f"term {older.term}"
                    )

    def has_served(self, where: Where, term: int) -> bool:
        """Whether a primary of this term, or of a later one, has served the partition."""
        return self._served.get(where, (0, ""))[0] >= term

    def executed(self, agent: AgentProcess, uid: str, role: Primary) -> None:
        """I-4: nobody takes commands in an older term than one that was ever served."""
        term, label = self._served.get((uid, role.copy.partition), (0, ""))
        if role.term < term and not self.resets.has_left((uid, role.copy.partition), role.term):
            raise InvariantError(
                f"I-4: {agent.label} takes a command of partition {role.copy.partition} in term "
                f"{role.term}, {label} has served {term}"
            )

    def answered(self, agent: AgentProcess, op: Op) -> None:
        """A client is told that its write is done, or is shown a row."""
        op.answered_us = self.cluster.world.time_us
        zone = agent.core.zones[op.zone]
        where = (op.zone, self.cluster.partition_of(op))
        answered_in = zone.copies[where[1]].last_term
        resets = self.resets
        if resets.has_left(where, answered_in) or resets.is_announced(where, answered_in):
            resets.left_ops.add(id(op))
            return
        if op.wrote is None:
            return
        partition, term, counter = op.wrote
        role = self.cluster.role_of(agent, op.zone, partition)
        self._answered_by.setdefault(where, {})[answered_in] = zone.me.store
        self._answered_in.setdefault(where, {}).setdefault(counter, answered_in)
        known = self.acknowledged.setdefault((op.zone, partition), {})
        if known.setdefault(counter, term) != term:
            raise InvariantError(
                f"I-4: counter {counter} of partition {partition} was answered in terms "
                f"{known[counter]} and {term} ({agent.label})"
            )
        if not zone.record.acknowledges_alone:
            self._check_held(agent, op.zone, partition, term, counter)
        elif role is not None and counter > role.acked:
            reached = role.copy.durable_lwm if role.lease.ms > agent.now().boot_ms else 0
            if counter > reached:
                raise InvariantError(f"I-5: {agent.label} answers {op} alone at {reached}")

    def _check_not_held(self, uid: str, role: Primary, term: int, counter: int) -> None:
        """I-5: an announced change of primary loses only what no quorum of the voters held."""
        if self.cluster.zones[uid].sync_writes is SyncWrites.INTERVAL or role.row.reset is not None:
            return
        hold = []
        for voter in role.row.voters:
            copy = self._copy_of(uid, voter, role.copy.partition)
            if copy is not None and counter <= copy.lwm:
                hold += [voter.node] if copy.lineage.term_at(counter) in (None, term) else []
        living = self._living(uid, role.row.voters, self._newest)
        dead = [voter.node for voter in role.row.voters if voter not in living]
        if is_quorum(role.row, hold, dead):
            raise InvariantError(f"I-5: {role.row} lost ({term}, {counter}), which {hold} hold")

    def _check_held(
        self, agent: AgentProcess, uid: str, partition: int, term: int, counter: int
    ) -> None:
        """I-5: what is answered or shown from now on is held by a quorum of the voters.

        Those of the newest row: who shows it may not have heard yet of a migration's end, after
        which the voter that left deletes its copy.  Whoever is not there to be asked may hold it:
        nobody is counted for whom it is not known.
        """
        role = self.cluster.role_of(agent, uid, partition)
        if role is None or self.cluster.zones[uid].sync_writes is SyncWrites.INTERVAL:
            return
        if self.resets.has_left((uid, partition), role.term):
            return  # its primary has not heard of the reset yet
        row = self.cluster.committed_row(uid, partition)
        if row is None or row.version < role.row.version:
            row = role.row
        lack = []
        voters = _members(row)
        for voter in voters:
            copy = self._copy_of(uid, voter, partition)
            if copy is None:
                continue
            held = copy.above.get(term)
            if counter <= copy.lwm:
                is_held = copy.lineage.term_at(counter) in (None, term)
            else:
                is_held = held is not None and counter in held
            if not is_held:
                lack.append(voter.node)
        if not lack:
            return
        living = self._living(uid, voters, self._newest)
        dead = [voter.node for voter in voters if voter not in living]
        hold = [voter.node for voter in voters if voter.node not in lack]
        # A rebuilt row is activated by a quorum of each of its sets.  Who answers in an earlier
        # term knows one of them only: what a quorum of that one holds is in every quorum of all.
        may_be_lost = is_quorum(row, lack, dead) if row.sets else not is_quorum(row, hold, dead)
        if may_be_lost:
            raise InvariantError(
                f"I-5: {agent.label} shows ({term}, {counter}) of partition {partition} in term "
                f"{role.term}: {', '.join(lack)} of {len(voters)} voters lack it"
            )

    def _copy_of(self, uid: str, voter: Voter, partition: int) -> Copy | None:
        """The voter's copy, or what its disk has kept of it; None when there is none."""
        agent, disk = self.cluster.agent_at(voter.node), self.cluster.disks[voter.node]
        zone = agent.core.zones.get(uid) if agent is not None else None
        if zone is not None:
            present = zone.copies.get(partition) if zone.me.store == voter.store else None
            return present if present is not None and present.present else None
        if disk.store != voter.store or uid not in disk.images:
            return None
        copy = Copy(partition, SimStorage(disk.images[uid]))
        copy.recover()
        return copy if copy.present else None

    # --- the end ---------------------------------------------------------------------------------

    def check_history(self, history: list[Op]) -> None:
        """Per key, the clients' history is linearizable; I-5 through the last reads."""
        for uid, key in sorted({(op.zone, op.key) for op in history}):
            partitions = self.cluster.zones[uid].partitions
            partition = key_partition(key, partitions)
            ops = [
                op
                for op in history
                if op.zone == uid
                and (
                    op.key == key
                    or (op.kind == "flush" and key_partition(op.key, partitions) == partition)
                )
            ]
            calls = [
                Call(op.start_us, op.end_us, op.kind, op.value, op.result, str(op)) for op in ops
            ]
            unexplained = self.resets.unexplained((uid, partition), ops, calls)
            if unexplained:
                story = "\n  ".join(
                    call.name for call in sorted(calls, key=lambda call: call.start)
                )
                raise InvariantError(
                    f"not linearizable: key {key!r}: {unexplained[0].name}\n  {story}"
                )

    def problems(self) -> list[str]:
        """What is not yet as it must be when all is quiet (I-6, I-7, everything serves)."""
        cluster = self.cluster
        found: list[str] = []
        for uid, record in cluster.zones.items():
            usable = sum(
                uid in agent.core.zones and fits(agent.name, record) for agent in cluster.living()
            )
            for partition in range(record.partitions):
                row = cluster.committed_row(uid, partition)
                if row is None:
                    return [f"partition {partition} of {uid} has no row"]
                found += self._partition_problems(uid, partition, row, usable)
            found += placement_problems(cluster, record)
            found += data_node_problems(cluster, record)
        if cluster.metastore.recovering:
            found.append("the metastore was lost and is not rebuilt yet")
        return found

    def _partition_problems(
        self, uid: str, partition: int, row: PartitionRow, usable: int
    ) -> list[str]:
        cluster = self.cluster
        if row.active is not None:
            return [f"partition {partition}: {row.active.migration_id} is active"]
        if row.sets:
            return [f"partition {partition}: {row} still has two sets of voters"]
        found: list[str] = []
        master = cluster.newest_master()
        led = master.master.zones.get(uid) if master is not None and master.master else None
        part = led.parts.get(partition) if led is not None else None
        if master is not None and (part is None or part.row != row):
            found.append(f"{master.name} has not heard of {row}, its row is {part and part.row}")
        wanted = cluster.zones[uid].replicas
        if usable >= wanted and not len(row.owners) == len(row.voters) == wanted:
            found.append(f"partition {partition}: {usable} agents are there, but the row is {row}")
        states: list[object] = []
        serving = mine_count = 0
        stores = {voter.node: voter.store for voter in row.voters}
        for agent in cluster.living():
            zone = agent.core.zones.get(uid)
            if zone is None:
                found.append(f"{agent.label} has not heard of the zone")
                continue
            role = zone.primaries[partition]
            copy = zone.copies.get(partition)
            if role is not None and role.serves(agent.now().boot_ms) and role.term == row.term:
                serving += 1
                found += [f"{agent.label} never removes {key!r}" for key in _kept_for_ever(role)]
            mine = stores.get(agent.name) == zone.me.store
            present = copy is not None and copy.present
            rows = copy.space.scan(None, 1 << 30, 1 << 30) if copy is not None else []
            is_kept = any(v.store == zone.me.store for v in row.left_by_reset)
            if is_kept and usable >= wanted:
                found.append(f"partition {partition}: {agent.label} is not a voter again")
            if not mine and not is_kept and (present or rows):
                found.append(f"I-7: {agent.label} still has partition {partition}")
            if not mine:
                continue
            mine_count += 1
            if not present or copy is None or not copy.adopted or copy.above:
                found.append(f"I-7: {agent.label} lacks partition {partition}")
                continue
            if partition in zone.fills:
                found.append(f"partition {partition}: {agent.label} is still filling")
            if agent.name not in row.replicas:
                found.append(f"partition {partition}: {agent.name} is back and does not own")
            states.append((agent.label, copy.last_term, copy.lwm, _live(copy)))
        if mine_count < len(row.voters):
            found.append(f"I-7: partition {partition}: stores are gone that vote in {row}")
        if serving != 1:
            found.append(f"partition {partition}: {serving} primaries serve {row}")
        if len({repr(state[1:]) for state in states if isinstance(state, tuple)}) > 1:
            found.append(f"I-6: partition {partition}: copies differ: {states}")
        return found


def _members(row: PartitionRow) -> tuple[Voter, ...]:
    """The row's voters, and those of its sets."""
    return tuple(dict.fromkeys(voter for each in row.voter_sets for voter in each))


def _kept_for_ever(role: Primary) -> list[bytes]:
    """Keys that expire, and tombstones, in none of the queues by which they are removed."""
    copy = role.copy
    times = {(at_ms, key) for key, at_ms in copy.expiring.due.items()}
    queued = times.intersection(copy.expiring.heap)
    noted, rows = copy.tombstones, copy.space.scan(None, 1 << 30, 1 << 30)
    found = [key for key, row in rows if row.value is None and row.counter > noted.get(key, 0)]
    live = [(row.expires_at, key) for key, row in rows if row.value is not None and row.expires_at]
    return found + [key for at_ms, key in live if (at_ms, key) not in queued]


def _live(copy: Copy) -> list[tuple[bytes, Row]]:
    rows = copy.space.scan(None, 1 << 30, 1 << 30)
    return [(key, row) for key, row in rows if row.value is not None]


def _age(record: NodeRecord) -> tuple[int, int]:
    """The simulator numbers its stores in the order of their making."""
    return int(record.store.removeprefix("s")), record.incarnation
