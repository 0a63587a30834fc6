"""Runs one agent's copies of one zone through a turn of the event loop.

The shell passes in rows, messages, commands and the time, then calls `flush` once per turn.
`flush` writes the batch and returns what to send now and what to send once the batch is durable
(`synced`).  Nothing here knows sockets, clocks or threads; the simulator runs this very object.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent import activation, committed_rows, transfer, upkeep, voter
from quorate.protocol.agent.next_look import next_look_ms
from quorate.protocol.agent.repairs.refill import Refills
from quorate.protocol.agent.repairs.repair_key import KeyRepairs
from quorate.protocol.agent.supply_rate import SupplyRate
from quorate.protocol.agent.turn import (
    Turn,
    appends,
    go_back,
    may_be_divided,
    put_back,
    set_aside,
)
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.zone_copies import Finished, ZoneCopies
from quorate.protocol.messages.master import (
    Freeze,
    PreparedRow,
    RowsStored,
    Trouble,
    TroubleKind,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER, Outbox
from quorate.protocol.messages.replication import (
    Acks,
    Append,
    Fence,
    FenceAck,
    FenceRefused,
    Rejected,
    Sync,
)
from quorate.protocol.messages.transactions import TransactionMessage
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Unavailable,
    Updates,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Storage, StorageFull
from quorate.protocol.transactions.transactions import Transactions


def _no_client_has() -> bool:
    """Say that no client has work, until the shell says otherwise."""
    return False


class Replicas(ZoneCopies):
    """All copies of one zone on one agent."""

    def __init__(
        self,
        record: ZoneRecord,
        me: Holder,
        storage: Storage,
        leases: Leases,
        settings: ProtocolSettings,
        now: Now,
        rate: SupplyRate | None = None,
    ) -> None:
        """`rate`: the agent's limit on what it supplies; None: these are its only copies."""
        super().__init__(record, me, storage, leases, settings, now)
        self.busy_ms = now.boot_ms  # when a tick last saw something in progress
        # Whether the shell has something to settle for the zone's clients.
        self.clients_have_work: Callable[[], bool] = _no_client_has
        self.upkeep = upkeep.Upkeep(self, rate or SupplyRate(settings.transfer_bytes_per_s))
        self.transactions = Transactions(self)
        self.refills = Refills(self)
        self.repairs = KeyRepairs(self)
        self.waits_for_values = False  # the turn goes on until long values are written
        self._incarnations: dict[str, int] = {}
        self._refused_ms = 0

    # --- from the master -------------------------------------------------------------------------

    def set_record(self, record: ZoneRecord) -> None:
        """Take in the zone's record; another write mode counts for all that is not answered yet."""
        before = self.record
        super().set_record(record)
        if before.write_mode is not record.write_mode:
            self.wake()
            for role in self.roles.values():
                role.is_full_sync = record.acknowledges_by_all
                role.answer_alone(record.acknowledges_alone)
            for role in list(self.roles.values()):
                activation.step(self, role, self.now)

    def set_members(self, nodes: Iterable[NodeRecord]) -> None:
        """Take in the registered nodes; a new incarnation has forgotten what we sent it.

        Roles depend on the stores and incarnations; with FULL_SYNC also on who is online.
        """
        nodes = tuple(nodes)
        stores, incarnations = dict(self.stores), dict(self._incarnations)
        # Where owners that leave are waited for, a role goes on without them at once.
        online = self.online if self.record.acknowledges_by_all else None
        self.registered = {node.name: node.incarnation for node in nodes}
        self.online = frozenset([node.name for node in nodes if node.left_since_ms is None])
        for node in nodes:
            store = node.zone_store(self.record.persistent)
            known = (self.stores.get(node.name), self._incarnations.get(node.name))
            self.stores[node.name] = store
            self._incarnations[node.name] = node.incarnation
            self.domains[node.name] = node.failure_domain
            if known not in ((None, None), (store, node.incarnation)):
                self.peer_started(node.name, self.now)  # a new store counts incarnations from 1
        is_same_online = online is None or online == self.online
        if is_same_online and (stores, incarnations) == (self.stores, self._incarnations):
            return
        self.wake()
        for role in self.roles.values():
            role.follow(role.row)  # the loss of a store may change the quorum
            self.renew_lease(role)
        for role in list(self.roles.values()):
            activation.step(self, role, self.now)

    def peer_started(self, node: str, now: Now) -> None:
        """Note that `node` is a new process.

        It has forgotten what it was sent and which promises it took back.
        """
        self.now = now
        self.wake()
        for role in self.roles.values():
            activation.peer_restarted(role, node)
            self.renew_lease(role)

    def set_rows(self, rows: Iterable[PartitionRow], now: Now) -> None:
        """Take in committed rows; the reply, RowsStored, is sent once they are durable here."""
        self.now = now
        self.wake()
        stored: list[tuple[int, int]] = []
        behind: list[tuple[int, tuple[str, ...]]] = []
        for row in rows:
            committed_rows.take(self, row, now)
            known = self.table[row.partition]
            stored.append((row.partition, known.version if known else row.version))
            role = self.roles.get(row.partition)
            if role is not None and (nodes := activation.owners_behind(role)):
                behind.append((row.partition, nodes))
        if stored:
            self.out.send_durable(MASTER, RowsStored(self.uid, tuple(stored), tuple(behind)))

    # --- messages --------------------------------------------------------------------------------

    def receive(self, node: str, message: Message, now: Now) -> None:
        """Take in one message about this zone, of another agent or of the master (node MASTER)."""
        self.now = now
        self.wake()
        match message:
            case Append():
                for batch in message.batches:
                    voter.append(self, node, batch)
            case Acks():
                for partition, term, lwm in message.entries:
                    self._ack(node, partition, term, lwm)
            case Fence():
                voter.fence(self, node, message)
            case FenceAck():
                role = self.roles.get(message.partition)
                if role is not None:
                    role.promised(node, message, now.boot_ms)
                    self.renew_lease(role)
                    activation.step(self, role, now)
            case FenceRefused() | Rejected():
                role = self.roles.get(message.partition)
                if role is not None and role.term == message.term:
                    activation.refused(self, role, node, message.promised)
            case Sync():
                transfer.told_to_adopt(self, node, message)
            case FetchUpdates() | FetchKeys():
                self.upkeep.supply(node, message)
            case FetchSnapshot():
                self.upkeep.supply_later(node, message)
            case Updates():
                transfer.take_updates(self, node, message)
            case KeyRows():
                transfer.take_keys(self, node, message)
            case SnapshotChunk():
                transfer.take_chunk(self, node, message)
            case Unavailable():
                transfer.refused(self, node, message)
            case PreparedRow():
                voter.prepare(self, message)
            case Freeze():
                role = self.roles.get(message.partition)
                if role is not None and role.term == message.term:
                    activation.freeze(self, role, message.migration_id, now)
            case _ if isinstance(message, TransactionMessage):
                self.transactions.receive(node, message)
            case _:
                raise TypeError(f"not a message about a zone's copies: {type(message).__name__}")

    def _ack(self, node: str, partition: int, term: int, lwm: int) -> None:
        role = self.roles.get(partition)
        if role is None or role.term != term:
            return
        peer = role.peers.get(node)
        if peer is None or not peer.promised:
            return
        if lwm > peer.lwm or not peer.adopted:
            peer.progress_ms = self.now.boot_ms
        first = not peer.adopted
        peer.adopted = True
        peer.lwm = max(peer.lwm, lwm)
        if (
            first
            or role.stage is not Stage.SERVING
            or role.row.active is not None
            or not peer.ready
        ):
            activation.step(self, role, self.now)
        elif lwm <= role.acked:
            return  # a quorum already had these counters
        self.advance(role)

    # --- time ------------------------------------------------------------------------------------

    def lease_moved(self, node: str, partition: int, term: int) -> None:
        """End the role, because `node` has promised the partition to a holder in a higher term."""
        role = self.roles.get(partition)
        if role is not None and role.term < term and node in role.peers:
            # It is for good, because the exception is repeated only until we confirm it: a FenceAck
            # that was delayed by a slow disk must not make that voter's lease count again.
            self.end_role(role)

    def tick(self, now: Now) -> None:
        """Do what is due by time: retries, repairs, expiry, log bounds."""
        self.now = now
        was_touched = not self.look_ms
        if self.refused_rows and now.boot_ms - self._refused_ms >= self.settings.retry_ms:
            self._refused_ms = now.boot_ms
            rows, self.refused_rows = list(self.refused_rows.values()), {}
            self.set_rows(rows, now)
        self.upkeep.tick(now)
        fills = len(self.fills)
        self.refills.tick(now)
        self.repairs.tick(now)
        self.transactions.tick(now)
        for role in list(self.roles.values()):
            activation.tick(self, role, now)
        transfer.tick(self, now)
        self.look_ms = next_look_ms(
            self, self.upkeep, self.refills, self.repairs, self.transactions, now
        )
        if len(self.fills) < fills:
            self.look_ms = now.boot_ms  # what has ended may have left a gap to be repaired
        if was_touched or self.in_progress:
            self.busy_ms = now.boot_ms

    # --- the turn --------------------------------------------------------------------------------

    @property
    def has_turn(self) -> bool:
        """Whether a flush would do anything; much cheaper than flushing an idle zone."""
        return bool(
            self.wrote
            or self.touched
            or self.dirty
            or self.adopting
            or self.out.at_once
            or self.out.after_sync
            or self.ack_due
            or self.announcements
            or self.refilled
        )

    @property
    def has_work(self) -> bool:
        """Whether the end of a turn has anything to write, send or settle."""
        return bool(
            self.clients_have_work()
            or self.has_turn
            or any(self.finished)
            or self.transactions.has_news
        )

    @property
    def lacks_a_role(self) -> bool:
        """Whether a row names us primary but no role can serve it; the master is told."""
        return any(True for _ in self._rows_without_role())

    def _rows_without_role(self) -> Iterator[PartitionRow]:
        me, roles = self.me, self.roles
        for row in self.table:
            if row is not None and row.primary == me and row.partition not in roles:
                yield row

    @property
    def to_hand_over(self) -> tuple[int, ...]:
        """The partitions that should have other primaries, because a person asks for it."""
        return tuple(sorted({*self.refills.partitions, *self.repairs.to_hand_over}))

    @property
    def wants_turn(self) -> bool:
        """Whether the end of a turn would now write or send something."""
        return bool(self.wrote or self.out.at_once) and not self.waits_for_values

    def flush_some(self, waiting: Collection[int], now: Now) -> Turn | None:
        """End the turn of all partitions but `waiting`, whose long values are not written yet.

        Returns None if the turn says something that may concern them: then all of it goes on.
        """
        self.waits_for_values = True
        if not may_be_divided(self):
            self.now = now
            return None
        aside = set_aside(self, waiting)
        turn = self.flush(now, waiting, aside.records)
        self.waits_for_values = True
        put_back(self, aside)
        return turn

    def flush(
        self,
        now: Now,
        waiting: Collection[int] = (),
        waiting_records: Collection[bytes] = (),
    ) -> Turn:
        """End the turn: write the batch and return what to send.  `waiting`: see `flush_some`."""
        self.now = now
        self.waits_for_values = False
        if self.touched:
            self.wrote = True
            if self.look_ms:
                self.wake()
            self.upkeep.wrote()
            self.check_touched()  # a turn that raises writes nothing, and its agent stops
            try:
                self.storage.commit(waiting, waiting_records)
            except StorageFull:
                go_back(self)
                self.upkeep.count_anew()
            for copy in self.touched.values():
                copy.written()
        if self.dirty:
            for nodes, message in appends(self.uid, self.dirty.values()):
                for node in nodes:
                    self.out.send(node, message)
            self.dirty = {}
        if self.announcements:
            for node, batches in self.announcements.items():
                self.out.send(node, Append(self.uid, tuple(batches)))
            self.announcements = {}
        turn = Turn(
            self.out.at_once,
            self.out.after_sync,
            [(copy, copy.last_term, copy.lwm) for copy in self.touched.values()],
            # Only of copies that have adopted: a later adoption is durable only with its own turn.
            [due for due in self.ack_due.values() if due[1].last_term == due[2]],
            self.adopting,
            self.refills.take_ended(),
            self.wrote,
        )
        self.out = Outbox()
        self.touched = {}
        self.ack_due = {}
        self.adopting = []
        self.wrote = False
        return turn

    def synced(self, turn: Turn, now: Now) -> list[tuple[str, Message]]:
        """Return what may be sent because the turn's batch is durable."""
        self.now = now
        if self.look_ms:
            self.wake()
        for copy, last_term, lwm in turn.durable:
            if copy.last_term == last_term and lwm > copy.durable_lwm:
                copy.durable_lwm = lwm
                role = self.roles.get(copy.partition)
                if role is not None:
                    self.advance(role)
        for role in turn.adopted:
            if self.roles.get(role.copy.partition) is role:
                role.persisted = True
                activation.step(self, role, now)
        if turn.refilled:
            self.refills.durable(turn.refilled)
        sends = turn.after_sync
        by_node: dict[str, list[tuple[int, int, int]]] = {}
        for node, copy, term in turn.acks:
            if copy.last_term == term:
                entry = (copy.partition, term, copy.durable_lwm)
                by_node.setdefault(node, []).append(entry)
        for node, entries in by_node.items():
            sends.append((node, Acks(self.uid, tuple(entries))))
        return sends

    def take_finished(self) -> Finished:
        """Return the waiters whose wait has ended since the last call."""
        finished = self.finished
        if any(finished):
            self.finished = Finished([], [], [], [])
        return finished

    def give_up_transactions(self, now: Now) -> None:
        """Have transactions end in time that can go on no more, because no role is left here."""
        self.now = now
        self.transactions.tick(now)

    def close(self) -> None:
        """End all roles, because the zone is deleted.

        The shell closes the storage once no client reads from the copies any more."""
        self.end_roles()
        self.fills.clear()
        self.upkeep.close()

    def troubles(self, now: Now) -> tuple[Trouble, ...]:
        """Return roles that are stuck, and rows that name us primary but that no role can serve."""
        stuck = [activation.trouble(self, role, now) for role in self.roles.values()]
        idle = [
            Trouble(
                self.uid, row.partition, row.term, TroubleKind.NO_ROLE, activation.TROUBLE_AFTER_MS
            )
            for row in self._rows_without_role()
        ]
        return tuple([trouble for trouble in stuck if trouble is not None] + idle)
